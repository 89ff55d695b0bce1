"""Lists of programs for command rules: which may take any further words, and which run others.

The rule `cat *` is offered because `cat` only reads. A program in none of these lists gets a rule
for the exact command only: whether it runs or removes something is unknown.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(program: str, words: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in _words(words))


_RUN = ("create", "dlx", "exec", "init", "run", "run-script", "x")

READERS = _words(
    "arch b2sum basename cal cat cd cksum cmp column comm cut df diff dirname du echo egrep "
    "expr factor false fgrep fold free grep groups head hexdump id jq ls lscpu md5sum nl "
    "nproc numfmt od paste pgrep printf ps pwd readlink realpath rev seq sha1sum sha256sum "
    "sha512sum sleep stat strings sum tac tail test tr true type uname uptime wc which whoami"
)
"""Programs that only print: none of their options runs a program or writes a file."""

MAKERS = _words(
    "black eslint flake8 isort jest mkdir mocha mypy prettier pylint pyright pytest touch tsc "
    "vitest"
)
"""Programs that create something empty, or check the project with its own code."""

SUBCOMMANDS = (
    _pairs("git", "add blame commit describe diff log ls-files rev-parse shortlog show status")
    | _pairs("npm", "ls outdated t test")
    | _pairs("pnpm", "list outdated test")
    | _pairs("yarn", "list outdated test")
    | _pairs("bun", "test")
    | _pairs("cargo", "bench build check clippy doc fmt metadata test tree")
    | _pairs("go", "build doc fmt list test vet")
    | _pairs("ruff", "check format")
    | _pairs("pip", "check freeze list show")
    | _pairs("pip3", "check freeze list show")
    | _pairs("uv", "tree")
    | _pairs("poetry", "check show")
    | _pairs("dotnet", "build test")
    | _pairs("mvn", "compile test")
    | _pairs("gradle", "build check test")
    | _pairs("mix", "compile format test")
    | _pairs("docker", "images logs ps")
    | _pairs("kubectl", "describe get logs")
    | _pairs("brew", "info list")
    | _pairs("apt", "list search show")
)
"""Like READERS and MAKERS, for programs whose second word names the action."""

SCRIPTS = frozenset(("python", "python3", "node", "ruby"))
"""Programs that run the file named by their second word."""
TASKS = frozenset(("npm run", "pnpm run", "yarn run", "bun run", "make", "just"))
"""Programs after which the next word names a task of the project."""

SHELL_WORDS = _words(
    "if then else elif fi case esac for select while until do done in function time coproc . : "
    "alias bg bind break builtin caller command compgen complete compopt continue declare dirs "
    "disown enable eval exec exit export fc fg getopts hash help history jobs kill let local "
    "logout mapfile popd pushd read readarray readonly return set shift shopt source suspend "
    "times trap typeset ulimit umask unalias unset wait"
)
"""Bash keywords and built-ins, except those that only print or inspect."""

RUNNERS = SHELL_WORDS | _words(
    # shells, and programs that switch the user or machine
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh yash nu pwsh powershell xonsh busybox "
    "toybox sudo doas su runuser setpriv pkexec gosu su-exec chpst setuidgid ssh mosh sshpass "
    "rsync scp sftp telnet nc ncat socat machinectl "
    # programs that run some of their arguments
    "env xargs parallel nohup nice ionice renice chrt taskset timeout gtimeout stdbuf unbuffer "
    "setsid setarch linux32 linux64 numactl catchsegv watch entr flock script scriptreplay expect "
    "screen tmux at batch crontab systemd-run systemctl start-stop-daemon daemon daemonize "
    "dbus-launch dbus-run-session xvfb-run run-parts chroot fakeroot unshare nsenter bwrap "
    "firejail proot prlimit cgexec capsh ltrace strace perf gdb lldb valgrind ld.so ld-linux.so.2 "
    "ld-linux-x86-64.so.2 hyperfine direnv dotenv find fd fdfind rg xdg-open open less more man vi "
    "vim nvim view ex ed emacs nano pico rlwrap "
    # languages whose arguments may be a program
    "awk gawk mawk nawk sed gsed php lua luajit tclsh wish java jshell groovy scala kotlin ghc "
    "runghc erl elixir iex julia Rscript R osascript gcc g++ cc c++ clang clang++ tcc m4 bc dc "
    "sqlite3 psql mysql "
    # programs with an option to run another
    "tar gtar bsdtar zip 7z cpio sort split cmake ninja ant "
    # programs that fetch a program and run it
    "npx pnpx bunx uvx pipx nix-shell vagrant ansible ansible-playbook dpkg rpm xcrun"
)
"""Programs that may run another one, whatever their first words: patterns would allow anything."""

GROUPS = _words(
    "git npm pnpm yarn bun cargo go pip pip3 uv poetry pdm hatch rye make gmake just task rake "
    "docker podman nerdctl docker-compose kubectl helm gh brew apt apt-get dotnet mvn gradle "
    "bundle composer mix terraform python python2 python3 pypy pypy3 ipython node nodejs deno "
    "ruby irb perl conda mamba rustup nix guix yum dnf apk pacman snap flatpak"
)
"""Programs whose second word names the action: no pattern without it."""

RUNNING_GROUPS = (
    _pairs("git", "bisect clone config difftool fetch filter-branch grep ls-remote mergetool pull")
    | _pairs("git", "push rebase submodule")
    | frozenset(f"{tool} {word}" for tool in ("npm", "pnpm", "yarn", "bun") for word in _RUN)
    | _pairs("uv", "run tool x")
    | _pairs("docker", "compose container exec run")
    | _pairs("podman", "compose container exec run")
    | _pairs("kubectl", "debug exec run")
    | _pairs("go", "generate run tool")
    | _pairs("nix", "develop run shell")
    | frozenset(("poetry run", "pdm run", "hatch run", "rye run", "bundle exec", "conda run"))
    | frozenset(("mamba run", "cargo run", "deno run", "deno eval", "gh alias", "gh extension"))
)
"""Like RUNNERS, for two words: a pattern must name the third word, too."""
