// Types of the wire of `zot rpc`, protocol version 1.
// `zot schema rpc --typescript` makes this file.
// The server may send types of events, and fields, that are not here: ignore them.

export type ZotCommand = ZotHello | ZotPing | ZotPrompt | ZotGetMessages | ZotRetryPrompt | ZotCompact | ZotSteer | ZotFollowUp | ZotGetCommands | ZotRunCommand | ZotReloadExt | ZotRunShell | ZotOpenAgent | ZotCloseAgent | ZotListAgents | ZotGetState | ZotGetModels | ZotGetApprovals | ZotEvents | ZotNewSession | ZotListSessions | ZotLoadSession | ZotForkSession | ZotExportSession | ZotSetMessages | ZotCheckpoints | ZotRewind | ZotGetChanges | ZotClear | ZotSetModel | ZotSetReasoning | ZotSetJail | ZotSetMode | ZotResumeRun | ZotAbort | ZotAbortShell | ZotApprove | ZotRemoveApproval | ZotAnswer | ZotPanelKey | ZotPanelResize | ZotPanelClose;

export type ZotEvent = ZotUserMessage | ZotAssistantMessage | ZotTurnStart | ZotAssistantStart | ZotTextDelta | ZotThinkingDelta | ZotUsage | ZotCacheMiss | ZotTurnEnd | ZotToolUseStart | ZotToolUseArgs | ZotToolUseEnd | ZotToolCall | ZotToolStart | ZotToolProgress | ZotToolResult | ZotError | ZotDone | ZotRunResumed | ZotRunHeld | ZotRunSuspended | ZotRetry | ZotFallback | ZotQueueUpdate | ZotCompactStart | ZotCompactDone | ZotApprovalRequest | ZotApprovalResolved | ZotExtAsk | ZotExtNotify | ZotExtDisplay | ZotExtPanel | ZotMcpServer;

export type ZotResponse = ZotHelloResponse | ZotPromptResponse | ZotRetryPromptResponse | ZotResumeRunResponse | ZotEventsResponse | ZotSteerResponse | ZotFollowUpResponse | ZotAbortResponse | ZotCompactResponse | ZotGetStateResponse | ZotGetMessagesResponse | ZotClearResponse | ZotSetModelResponse | ZotSetReasoningResponse | ZotSetJailResponse | ZotSetModeResponse | ZotGetModelsResponse | ZotGetCommandsResponse | ZotRunCommandResponse | ZotReloadExtResponse | ZotPanelKeyResponse | ZotPanelResizeResponse | ZotPanelCloseResponse | ZotAnswerResponse | ZotRunShellResponse | ZotAbortShellResponse | ZotNewSessionResponse | ZotListSessionsResponse | ZotLoadSessionResponse | ZotForkSessionResponse | ZotExportSessionResponse | ZotCheckpointsResponse | ZotRewindResponse | ZotGetChangesResponse | ZotSetMessagesResponse | ZotOpenAgentResponse | ZotCloseAgentResponse | ZotListAgentsResponse | ZotPingResponse | ZotApproveResponse | ZotGetApprovalsResponse | ZotRemoveApprovalResponse | ZotFailedResponse;

export interface ZotFailedResponse {
  type: "response";
  command: string;
  success: false;
  /** Echoed in the response. */
  id?: string | number;
  error: string;
  /** Feature `codes`. */
  code?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotHelloResponse {
  type: "response";
  command: "hello";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotHelloData;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotPromptResponse {
  type: "response";
  command: "prompt";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotStarted;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotRetryPromptResponse {
  type: "response";
  command: "retry_prompt";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotStarted;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotResumeRunResponse {
  type: "response";
  command: "resume_run";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotEventsResponse {
  type: "response";
  command: "events";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotEventsRead;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSteerResponse {
  type: "response";
  command: "steer";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data?: ZotStarted;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotFollowUpResponse {
  type: "response";
  command: "follow_up";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data?: ZotStarted;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotAbortResponse {
  type: "response";
  command: "abort";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotCompactResponse {
  type: "response";
  command: "compact";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotStarted;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetStateResponse {
  type: "response";
  command: "get_state";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotState;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetMessagesResponse {
  type: "response";
  command: "get_messages";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotMessages;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotClearResponse {
  type: "response";
  command: "clear";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSetModelResponse {
  type: "response";
  command: "set_model";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotModelSet;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSetReasoningResponse {
  type: "response";
  command: "set_reasoning";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotReasoningSet;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSetJailResponse {
  type: "response";
  command: "set_jail";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotJailSet;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSetModeResponse {
  type: "response";
  command: "set_mode";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotModeSet;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetModelsResponse {
  type: "response";
  command: "get_models";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotModels;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetCommandsResponse {
  type: "response";
  command: "get_commands";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotCommands;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotRunCommandResponse {
  type: "response";
  command: "run_command";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotCommandRan;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotReloadExtResponse {
  type: "response";
  command: "reload_ext";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotReloaded;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotPanelKeyResponse {
  type: "response";
  command: "panel_key";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotPanelResizeResponse {
  type: "response";
  command: "panel_resize";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotPanelCloseResponse {
  type: "response";
  command: "panel_close";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotAnswerResponse {
  type: "response";
  command: "answer";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotRunShellResponse {
  type: "response";
  command: "run_shell";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotShellRan;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotAbortShellResponse {
  type: "response";
  command: "abort_shell";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotNewSessionResponse {
  type: "response";
  command: "new_session";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotSessionLoaded;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotListSessionsResponse {
  type: "response";
  command: "list_sessions";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotSessions;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotLoadSessionResponse {
  type: "response";
  command: "load_session";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotSessionLoaded;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotForkSessionResponse {
  type: "response";
  command: "fork_session";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotSessionLoaded;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotExportSessionResponse {
  type: "response";
  command: "export_session";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotSessionExported;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotCheckpointsResponse {
  type: "response";
  command: "checkpoints";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotCheckpointList;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotRewindResponse {
  type: "response";
  command: "rewind";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotRewound;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetChangesResponse {
  type: "response";
  command: "get_changes";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotChanges;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSetMessagesResponse {
  type: "response";
  command: "set_messages";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotMessagesSet;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotOpenAgentResponse {
  type: "response";
  command: "open_agent";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotAgentOpened;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotCloseAgentResponse {
  type: "response";
  command: "close_agent";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotListAgentsResponse {
  type: "response";
  command: "list_agents";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotAgentList;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotPingResponse {
  type: "response";
  command: "ping";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotPong;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotApproveResponse {
  type: "response";
  command: "approve";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotGetApprovalsResponse {
  type: "response";
  command: "get_approvals";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  data: ZotApprovals;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotRemoveApprovalResponse {
  type: "response";
  command: "remove_approval";
  success: true;
  /** Echoed in the response. */
  id?: string | number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotAbort {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "abort";
  target?: string | number | null;
  /** Echoed in the response. */
  id?: string | number;
}

/** Kill the running shell commands. */
export interface ZotAbortShell {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "abort_shell";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotAgentList {
  agents: ZotAgentShape[];
}

export interface ZotAgentOpened {
  agent: string;
}

/** Summary of an agent. */
export interface ZotAgentShape {
  agent: string;
  state: "closing" | "idle" | "running" | "waiting";
  busy: boolean;
  queued: number;
  seq: number;
  provider: string;
  model: string;
  cwd: string;
  session_id: string;
  usage: ZotUsageShape;
  questions?: string[];
  parent?: string;
}

/** Answer an `ext_ask`. */
export interface ZotAnswer {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "answer";
  request_id: string;
  value?: string | null;
  confirmed?: boolean;
  cancelled?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

/** Feature `approvals`; answered by an `approve` command with this `request_id`. */
export interface ZotApprovalRequest {
  type: "approval_request";
  request_id: string;
  id: string;
  name: string;
  args: Record<string, unknown> | null;
  preview: string;
  timeout_ms: number;
  pattern?: string;
  diff?: string;
  line?: number;
  review?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The outcome of an ApprovalRequest (feature `approvals`). */
export interface ZotApprovalResolved {
  type: "approval_resolved";
  request_id: string;
  id: string;
  decision: "allow" | "deny";
  source: "abort" | "client" | "remembered" | "reviewer" | "timeout";
  reason?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Rule for calls that run without approval, or never (`deny`). */
export interface ZotApprovalShape {
  tool: string;
  pattern: string;
  deny?: boolean;
}

export interface ZotApprovals {
  approvals: ZotApprovalShape[];
}

/** Answer an `approval_request`. */
export interface ZotApprove {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "approve";
  request_id: string;
  decision: "allow" | "allow_project" | "allow_session" | "deny" | "deny_project";
  reason?: string;
  pattern?: string;
  args?: Record<string, unknown> | null;
  /** Echoed in the response. */
  id?: string | number;
}

/** The whole message of the model, as it was added to the transcript. */
export interface ZotAssistantMessage {
  type: "assistant_message";
  content: (ZotTextBlock | ZotImageBlock | ZotToolCallBlock | ZotToolResultBlock)[];
  time: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The model begins to answer. */
export interface ZotAssistantStart {
  type: "assistant_start";
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Feature `costs`: the provider did not find a prefix in its prompt cache that it should have known. `cause` names the first part that differs from the last request. */
export interface ZotCacheMiss {
  type: "cache_miss";
  cause: "message" | "model" | "settings" | "system" | "timeout" | "tools" | "unknown";
  expected: number;
  read: number;
  position?: number | null;
  detail?: string;
  seconds?: number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotChangedFileShape {
  path: string;
  action: "create" | "remove" | "restore";
  state: "changed" | "failed" | "lost" | "ok";
  diff: string;
  note?: string;
}

export interface ZotChanges {
  files: ZotChangedFileShape[];
}

export interface ZotCheckpointList {
  checkpoints: ZotCheckpointShape[];
}

/** The state before a prompt, to which `rewind` can return. */
export interface ZotCheckpointShape {
  id: string;
  time: string;
  text: string;
  message_count: number;
  files: string[];
}

/** List the prompts of the conversation, which `rewind` can go back to. */
export interface ZotCheckpoints {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "checkpoints";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotClear {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "clear";
  /** Echoed in the response. */
  id?: string | number;
}

/** Abort and close an agent; the response is sent once it is closed. */
export interface ZotCloseAgent {
  agent: string;
  type: "close_agent";
  /** Echoed in the response. */
  id?: string | number;
}

/** Result of a command; the field named after the action holds its text. */
export interface ZotCommandRan {
  action: "display" | "insert" | "noop" | "open_panel" | "prompt";
  extension: string;
  prompt?: string;
  insert?: string;
  display?: string;
  panel?: Record<string, unknown> | null;
  started?: boolean;
  queued?: number;
}

export interface ZotCommandShape {
  name: string;
  description: string;
  extension: string;
  kind?: "extension" | "prompt" | "skill";
}

export interface ZotCommands {
  commands: ZotCommandShape[];
}

export interface ZotCompact {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "compact";
  instructions?: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** The summary has replaced the older part of the transcript. */
export interface ZotCompactDone {
  type: "compact_done";
  summary: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The older part of the transcript is about to be summarised. */
export interface ZotCompactStart {
  type: "compact_start";
  reason: "manual" | "overflow" | "threshold";
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** US dollars by the kind of token. */
export interface ZotCostShape {
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
}

/** Last event of every prompt and every compact. */
export interface ZotDone {
  type: "done";
  run?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A failure of the run. The run goes on after some; the last `turn_end` decides. */
export interface ZotError {
  type: "error";
  message: string;
  code?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** With --durable: read the events after a sequence number, also those of earlier processes. */
export interface ZotEvents {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "events";
  from?: number;
  limit?: number;
  /** Echoed in the response. */
  id?: string | number;
}

/** Frames that were sent before, oldest first, each with its `seq`. */
export interface ZotEventsRead {
  events: unknown[];
  last: number;
  more?: boolean;
  cursor_expired?: boolean;
  snapshot?: ZotSnapshot;
}

export interface ZotExportSession {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "export_session";
  session?: string;
  format?: "html" | "json" | "markdown" | "pi" | "zotsession";
  path?: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Feature `dialogs`; answered by an `answer` command with this `request_id`. */
export interface ZotExtAsk {
  type: "ext_ask";
  request_id: string;
  extension: string;
  method: "confirm" | "editor" | "input" | "select";
  title: string;
  timeout_ms: number;
  message?: string;
  options?: string[];
  placeholder?: string;
  prefill?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A text of an extension for the user; the model does not see it. */
export interface ZotExtDisplay {
  type: "ext_display";
  extension: string;
  text: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A notice of an extension for the user. */
export interface ZotExtNotify {
  type: "ext_notify";
  extension: string;
  level: string;
  message: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** An extension opens, draws or closes a panel. */
export interface ZotExtPanel {
  type: "ext_panel";
  extension: string;
  action: "close" | "open" | "render";
  panel: Record<string, unknown>;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotExtensionShape {
  name: string;
  version: string;
  state: "ready" | "restarting" | "starting" | "stopped";
  commands: string[];
  tools: string[];
  error?: string;
}

/** The model failed permanently; the call continues with another model. */
export interface ZotFallback {
  type: "fallback";
  failed_model: string;
  provider: string;
  model: string;
  reason: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Add a message to the running prompt, delivered when the model would stop. */
export interface ZotFollowUp {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "follow_up";
  message?: string;
  images?: ZotImageData[] | null;
  /** Echoed in the response. */
  id?: string | number;
}

/** Copy a session into a new file and continue there. */
export interface ZotForkSession {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "fork_session";
  session?: string;
  at?: string | number | null;
  load?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

/** List the rules for calls that run without approval, or never, here or in this session. */
export interface ZotGetApprovals {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_approvals";
  /** Echoed in the response. */
  id?: string | number;
}

/** List the changes that tools made to the user's files in this session. */
export interface ZotGetChanges {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_changes";
  /** Echoed in the response. */
  id?: string | number;
}

/** List the slash commands: those of extensions, skills and prompt files. */
export interface ZotGetCommands {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_commands";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotGetMessages {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_messages";
  offset?: number;
  limit?: number | null;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotGetModels {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_models";
  all?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotGetState {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "get_state";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotHello {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "hello";
  token?: string;
  features?: string[] | null;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotHelloData {
  protocol_version: number;
  version: string;
  provider: string;
  model: string;
  features?: string[];
}

/** An image, shown as a number of bytes. */
export interface ZotImageBlock {
  type: "image";
  mime_type: string;
  bytes: number;
}

/** An image with its data, where an event has only its size. */
export interface ZotImageBlockData {
  type: "image";
  mime_type: string;
  data: string;
}

export interface ZotImageData {
  mime_type: string;
  data: string;
}

/** A jail as it is, for `get_state` and the status line. */
export interface ZotJailReport {
  level: "files" | "full" | "none";
  mode?: "read-only" | "workspace";
  reads?: "all" | "project";
  allow_write?: string[];
  deny_read?: string[];
  refuses?: boolean;
  problem?: string;
}

export interface ZotJailSet {
  jail: boolean | string;
}

/** Default limits of each prompt. */
export interface ZotLimitsData {
  max_steps?: number | null;
  max_cost?: number | null;
  max_tokens?: number | null;
  max_seconds?: number | null;
}

/** Limits of one prompt; null: no limit. */
export interface ZotLimitsShape {
  max_steps?: number | null;
  max_cost?: number | null;
  max_tokens?: number | null;
  max_seconds?: number | null;
}

/** List the named agents. */
export interface ZotListAgents {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "list_agents";
  /** Echoed in the response. */
  id?: string | number;
}

/** List the stored sessions of this directory, latest first. */
export interface ZotListSessions {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "list_sessions";
  all?: boolean;
  limit?: number;
  /** Echoed in the response. */
  id?: string | number;
}

/** Continue a stored session. */
export interface ZotLoadSession {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "load_session";
  session: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Feature `mcp`: the state of a server changed. */
export interface ZotMcpServer {
  type: "mcp_server";
  name: string;
  state: string;
  tools?: number;
  error?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Current state of an MCP server. */
export interface ZotMcpServerShape {
  name: string;
  state: string;
  origin: "given" | "project" | "user";
  tools?: number;
  changed?: string[];
  error?: string;
}

export interface ZotMessageData {
  role: "assistant" | "tool" | "user";
  content: (ZotTextData | ZotImageBlockData | ZotToolCallData | ZotToolResultData)[];
  time?: string;
}

/** A message of the transcript, as clients see it. */
export interface ZotMessageShape {
  role: "assistant" | "tool" | "user";
  content: (ZotTextBlock | ZotImageBlock | ZotToolCallBlock | ZotToolResultBlock)[];
  time: string;
}

export interface ZotMessages {
  messages: ZotMessageShape[];
}

export interface ZotMessagesSet {
  message_count: number;
}

export interface ZotModeSet {
  mode: "ask" | "ask_all" | "edits" | "plan" | "yolo";
}

export interface ZotModelSet {
  model: string;
  provider?: string;
}

/** A model that can be used. */
export interface ZotModelShape {
  id: string;
  provider: string;
  context_window: number;
  max_output: number;
  reasoning: boolean;
}

export interface ZotModels {
  models: ZotModelShape[];
}

/** Start a new session; the previous one is kept. */
export interface ZotNewSession {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "new_session";
  /** Echoed in the response. */
  id?: string | number;
}

/** Open another agent (feature `agents`); omitted fields are those the process started with. */
export interface ZotOpenAgent {
  agent?: string;
  type: "open_agent";
  cwd?: string;
  provider?: string;
  model?: string;
  session?: string;
  tools?: string[] | null;
  limits?: ZotLimitsData | null;
  approve?: string[] | null;
  jail?: boolean | string | null;
  durable?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

/** A call that a crash cut off, and how it is treated. */
export interface ZotOpenCall {
  id: string;
  name: string;
  started: boolean;
  replay: "idempotent" | "never" | "reconcile" | "safe";
}

export interface ZotPanelClose {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "panel_close";
  extension: string;
  panel_id: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Send a key to a panel of an extension, which `ext_panel` announced. */
export interface ZotPanelKey {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "panel_key";
  extension: string;
  panel_id: string;
  key: string;
  text?: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Report the new size of an extension's panel, in columns and rows. */
export interface ZotPanelResize {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "panel_resize";
  extension: string;
  panel_id: string;
  width: number;
  height: number;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotPing {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "ping";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotPong {
  pong?: boolean;
}

export interface ZotPrompt {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "prompt";
  max_steps?: number | null;
  max_cost?: number | null;
  max_tokens?: number | null;
  max_seconds?: number | null;
  message?: string;
  images?: ZotImageData[] | null;
  run?: string;
  schema?: Record<string, unknown> | null;
  /** Echoed in the response. */
  id?: string | number;
}

/** The messages that wait for the model (feature `queue`). */
export interface ZotQueueUpdate {
  type: "queue_update";
  steering: string[];
  follow_up: string[];
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotReasoningSet {
  reasoning: string;
}

/** Stop all extensions and start those installed now; the conversation continues. */
export interface ZotReloadExt {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "reload_ext";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotReloaded {
  extensions: ZotExtensionShape[];
}

/** Require approval again. */
export interface ZotRemoveApproval {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "remove_approval";
  tool: string;
  pattern: string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Continue a run that is held after a crash, or end it as failed. */
export interface ZotResumeRun {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "resume_run";
  run: string;
  decision?: "continue" | "fail";
  /** Echoed in the response. */
  id?: string | number;
}

/** Feature `retries`: the model call failed and is repeated after a delay. */
export interface ZotRetry {
  type: "retry";
  attempt: number;
  max_attempts: number;
  delay_ms: number;
  reason: string;
  code: string;
  dropped?: boolean;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Retry the last prompt, which failed or was aborted; its message is not added again. */
export interface ZotRetryPrompt {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "retry_prompt";
  /** Echoed in the response. */
  id?: string | number;
}

/** Go back to before a prompt: the conversation, the files that tools changed, or both. */
export interface ZotRewind {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "rewind";
  to?: string;
  conversation?: boolean;
  files?: boolean;
  preview?: boolean;
  force?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotRewound {
  checkpoint: string;
  text: string;
  message_count: number;
  files: ZotChangedFileShape[];
  preview: boolean;
}

/** Run a command of an extension, a skill or a prompt file, as if `/name args` was typed. */
export interface ZotRunCommand {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "run_command";
  name: string;
  args?: string;
  submit?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

/** Outcome of a durable run. */
export interface ZotRunEnd {
  stop: string;
  error?: string;
  code?: string;
  text?: string;
}

/** An interrupted durable run waits for a `resume_run` command. */
export interface ZotRunHeld {
  type: "run_held";
  run: string;
  attempt: number;
  reason: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A durable run of an earlier process continues; discard the turn that was open. */
export interface ZotRunResumed {
  type: "run_resumed";
  run: string;
  attempt: number;
  away_ms: number;
  open: ZotOpenCall[];
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Run a shell command of the user; add it and its output to the transcript. */
export interface ZotRunShell {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "run_shell";
  command: string;
  hidden?: boolean;
  /** Echoed in the response. */
  id?: string | number;
}

/** The process ends but the run continues with the next start. No `done` follows. */
export interface ZotRunSuspended {
  type: "run_suspended";
  run: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

export interface ZotSessionExported {
  format: string;
  path?: string;
  content?: string;
}

export interface ZotSessionLoaded {
  session: ZotSessionShape;
}

/** Summary of a session. */
export interface ZotSessionShape {
  id: string;
  path: string;
  message_count: number;
  cwd?: string;
  title?: string;
  first_text?: string;
  provider?: string;
  model?: string;
  started?: string;
  modified?: string;
  cost_usd?: number;
  parent?: string;
}

export interface ZotSessions {
  sessions: ZotSessionShape[];
}

/** Confine the tools to the working directory, or lift that. */
export interface ZotSetJail {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "set_jail";
  jail: boolean | string;
  /** Echoed in the response. */
  id?: string | number;
}

/** Replace the transcript; for embedders that keep their own. */
export interface ZotSetMessages {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "set_messages";
  messages: ZotMessageData[];
  /** Echoed in the response. */
  id?: string | number;
}

/** Choose what runs without approval. */
export interface ZotSetMode {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "set_mode";
  mode: "ask" | "ask_all" | "edits" | "plan" | "yolo";
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotSetModel {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "set_model";
  model: string;
  provider?: string;
  /** Echoed in the response. */
  id?: string | number;
}

export interface ZotSetReasoning {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "set_reasoning";
  reasoning: "high" | "low" | "max" | "medium" | "minimum" | "off" | "xhigh";
  /** Echoed in the response. */
  id?: string | number;
}

/** A shell command of the user and its output. */
export interface ZotShellRan {
  command: string;
  output: string;
  exit_code?: number | null;
  aborted?: boolean;
  truncated?: boolean;
  full_output?: string;
}

/** Current state, for a client that cannot get the events that led to it. */
export interface ZotSnapshot {
  state: ZotState;
  run?: string;
}

export interface ZotStarted {
  started: boolean;
  queued?: number;
  run?: string;
  resumed?: boolean;
  already_done?: boolean;
  end?: ZotRunEnd | null;
}

/** State of an agent. */
export interface ZotState {
  provider: string;
  model: string;
  cwd: string;
  message_count: number;
  busy: boolean;
  usage: ZotUsageShape;
  limits?: ZotLimitsShape;
  session?: ZotSessionShape;
  questions?: ZotApprovalRequest[];
  mode?: "ask" | "ask_all" | "edits" | "plan" | "yolo";
  dialogs?: ZotExtAsk[];
  jail?: ZotJailReport | null;
  mcp?: ZotMcpServerShape[];
}

/** Add a message to the running turn, after the current tool. */
export interface ZotSteer {
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  type: "steer";
  message?: string;
  images?: ZotImageData[] | null;
  /** Echoed in the response. */
  id?: string | number;
}

/** A text. */
export interface ZotTextBlock {
  type: "text";
  text: string;
}

export interface ZotTextData {
  type: "text";
  text: string;
}

/** A piece of the model's text. */
export interface ZotTextDelta {
  type: "text_delta";
  delta: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A piece of the model's reasoning (feature `thinking`). */
export interface ZotThinkingDelta {
  type: "thinking_delta";
  delta: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A tool is about to run with these arguments. */
export interface ZotToolCall {
  type: "tool_call";
  id: string;
  name: string;
  args: Record<string, unknown> | null;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A request of the model to run a tool. */
export interface ZotToolCallBlock {
  type: "tool_call";
  id: string;
  name: string;
  args: Record<string, unknown> | null;
}

export interface ZotToolCallData {
  type: "tool_call";
  id: string;
  name: string;
  args?: Record<string, unknown>;
}

/** A piece of output of a tool that runs. */
export interface ZotToolProgress {
  type: "tool_progress";
  id: string;
  text: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The result of a tool call, as the model gets it. */
export interface ZotToolResult {
  type: "tool_result";
  id: string;
  is_error: boolean;
  content: (ZotTextBlock | ZotImageBlock)[];
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The result of a tool call. */
export interface ZotToolResultBlock {
  type: "tool_result";
  call_id: string;
  is_error: boolean;
  content: (ZotTextBlock | ZotImageBlock)[];
}

export interface ZotToolResultData {
  type: "tool_result";
  call_id: string;
  content: (ZotTextData | ZotImageBlockData)[];
  is_error?: boolean;
}

/** Feature `tools`: the call has passed guards and approval; the tool starts. */
export interface ZotToolStart {
  type: "tool_start";
  id: string;
  name: string;
  args: Record<string, unknown> | null;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A piece of the call's arguments, as JSON text. */
export interface ZotToolUseArgs {
  type: "tool_use_args";
  id: string;
  delta: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The model has written the tool call; the tool has not run yet. */
export interface ZotToolUseEnd {
  type: "tool_use_end";
  id: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The model begins to write a tool call. */
export interface ZotToolUseStart {
  type: "tool_use_start";
  id: string;
  name: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** The model call has ended; `stop` says why. With `tool_use` its tools run next. */
export interface ZotTurnEnd {
  type: "turn_end";
  stop: "aborted" | "end" | "error" | "length" | "tool_use";
  stop_reason?: "aborted" | "end_turn" | "error" | "length" | "tool_use";
  error?: string;
  code?: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** A call of the model begins; `step` counts them from 1. */
export interface ZotTurnStart {
  type: "turn_start";
  step: number;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Tokens and cost of one model call. */
export interface ZotUsage {
  type: "usage";
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  cost_usd: number;
  cumulative: ZotUsageShape;
  cost_known?: boolean;
  cost?: ZotCostShape;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Tokens and cost. */
export interface ZotUsageShape {
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  cost_usd: number;
  cost_known?: boolean;
  cost?: ZotCostShape;
}

/** A message of the user, as it was added to the transcript. */
export interface ZotUserMessage {
  type: "user_message";
  content: (ZotTextBlock | ZotImageBlock | ZotToolCallBlock | ZotToolResultBlock)[];
  time: string;
  /** Feature `seq`: counts the frames. */
  seq?: number;
  /** Feature `seq`: the id of the prompt it belongs to. */
  prompt_id?: string | number;
  /** Feature `agents`: whose it is, or for whom. */
  agent?: string;
  /** Feature `agents`: whose tool opened that agent. */
  parent?: string;
}

/** Data of a successful response, by the word of its command. */
export interface ZotData {
  hello: ZotHelloData;
  ping: ZotPong;
  prompt: ZotStarted;
  get_messages: ZotMessages;
  retry_prompt: ZotStarted;
  compact: ZotStarted;
  steer: ZotStarted;
  follow_up: ZotStarted;
  get_commands: ZotCommands;
  run_command: ZotCommandRan;
  reload_ext: ZotReloaded;
  run_shell: ZotShellRan;
  open_agent: ZotAgentOpened;
  close_agent: undefined;
  list_agents: ZotAgentList;
  get_state: ZotState;
  get_models: ZotModels;
  get_approvals: ZotApprovals;
  events: ZotEventsRead;
  new_session: ZotSessionLoaded;
  list_sessions: ZotSessions;
  load_session: ZotSessionLoaded;
  fork_session: ZotSessionLoaded;
  export_session: ZotSessionExported;
  set_messages: ZotMessagesSet;
  checkpoints: ZotCheckpointList;
  rewind: ZotRewound;
  get_changes: ZotChanges;
  clear: undefined;
  set_model: ZotModelSet;
  set_reasoning: ZotReasoningSet;
  set_jail: ZotJailSet;
  set_mode: ZotModeSet;
  resume_run: undefined;
  abort: undefined;
  abort_shell: undefined;
  approve: undefined;
  remove_approval: undefined;
  answer: undefined;
  panel_key: undefined;
  panel_resize: undefined;
  panel_close: undefined;
}
