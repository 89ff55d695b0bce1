/** The errors of the client. `error` frames of a run are events, not exceptions; `ask` throws them as RunFailed. */

/** The server refused a command. `code` is a word for programs, with the feature `codes`. */
export class CommandFailed extends Error {
  override readonly name = "CommandFailed";
  constructor(
    readonly command: string,
    message: string,
    readonly code?: string,
  ) {
    super(message);
  }
}

/** The child has ended, or could not be started; `stderr` is the end of what it wrote there. */
export class ServerGone extends Error {
  override readonly name = "ServerGone";
  constructor(
    message: string,
    readonly exitCode: number | null,
    readonly stderr: string,
  ) {
    super(message);
  }
}

/** No response came in time. */
export class ResponseTimeout extends Error {
  override readonly name = "ResponseTimeout";
}

/** The run of `ask` failed or was aborted. */
export class RunFailed extends Error {
  override readonly name = "RunFailed";
  constructor(
    message: string,
    readonly stop: string,
    readonly code?: string,
  ) {
    super(message);
  }
}
