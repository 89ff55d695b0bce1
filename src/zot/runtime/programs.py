"""Tables of programs for approval rules: which only read, and which may run or remove anything.

A program in none of these tables is unknown: it is asked about, and gets a rule for the exact
command only.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(program: str, words: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in _words(words))


READERS: dict[str, str] = {
    **dict.fromkeys(
        "b2sum base64 basename cat cksum cmp column comm cut df dirname du echo egrep expand expr "
        "false fgrep fold grep head id ls md5sum nl nproc numfmt od paste printf pwd readlink "
        "realpath rev seq sha1sum sha256sum sha512sum stat sum tac tail tr true type uname "
        "unexpand wc which whoami".split(),
        "",
    ),
    "date": "-s --set -f --file",
    "diff": "-r --recursive -l --paginate",
    "du": "-L --dereference --files0-from -X --exclude-from",
    "egrep": "-R --dereference-recursive -f --file",
    "fgrep": "-R --dereference-recursive -f --file",
    "file": "-C --compile -m --magic-file -f --files-from -z -Z --uncompress "
    "--uncompress-noreport -p --preserve-date",
    "grep": "-R --dereference-recursive -f --file",
    "jq": "-f --from-file -L --library-path",
    "printf": "-v",
    "rg": "--pre --pre-glob --hostname-bin -z --search-zip -L --follow -f --file --ignore-file",
    "sort": "-o --output --compress-program -T --temporary-directory --files0-from",
    "tree": "-o -R --fromfile -l",
    "uniq": "",
    "wc": "--files0-from",
}
"""Programs that only print, each with the options that are asked about: they write, run something,
or read files that the command does not name."""

BUILT_INS = _words("[ command echo false printf pwd test true type")
"""Programs of READERS and others that are part of bash, so PATH does not matter."""

TEXT_OPERANDS: dict[str, int] = {
    **dict.fromkeys(
        "basename date dirname echo expr id numfmt printf seq tr type uname which".split(),
        1000,
    ),
    **dict.fromkeys(("egrep", "fgrep", "grep", "jq", "rg"), 1),
}
"""Number of first operands that are no paths."""

NAMED_TEXT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("egrep", "fgrep", "grep", "rg"), ("-e", "--regexp", "--files", "--type-list")),
}
"""Options after which the first operand is a path after all."""

FIND_WORDS = _words(
    "-P -H ! ( ) , -not -o -or -a -and -name -iname -path -ipath -wholename -iwholename -regex "
    "-iregex -regextype -type -xtype -size -empty -maxdepth -mindepth -depth -mtime -mmin -ctime "
    "-cmin -atime -amin -newer -perm -user -group -links -readable -writable -executable -print "
    "-print0 -printf -prune -quit -ls -xdev -mount -true -false -daystart"
)
"""The words of `find` that only look."""

TEST_ASKED = _words("-v -R")
"""`test -v NAME` evaluates a name, which may hold a command."""

VERSIONED = _words("bash clang cmake docker g++ gcc git java make node npm perl php python python3")
"""Programs that may be asked for `--version`."""

GIT_READS: dict[str, str] = {
    **dict.fromkeys(
        "blame cat-file check-ignore count-objects describe diff for-each-ref log ls-files ls-tree "
        "merge-base name-rev rev-list rev-parse shortlog show show-ref status".split(),
        "",
    ),
    "grep": "-O --open-files-in-pager -f --no-index",
}
"""Commands of git that only read, each with the options that are asked about."""

GIT_ASKED = (
    "--output --ext-diff --textconv --filters --no-index --show-signature --submodule --help "
    "--contents --upload-pack --exec"
)
"""Options that are asked about after every command of git."""

GIT_LISTS: dict[str, frozenset[str]] = {
    "branch": _words(
        "--list -l -a --all -r --remotes -v -vv --verbose --show-current --no-color --merged "
        "--no-merged --contains --no-contains"
    ),
    "tag": _words("--list -l -n"),
    "remote": _words("-v --verbose show get-url"),
    "stash": _words("list show"),
    "worktree": _words("list --porcelain"),
    "reflog": _words("show"),
}
"""Commands of git that list when they have only these words. `branch` and `tag` make something of
any other word, unless `--list` or `-l` comes first."""

GIT_MAKES = _words("add commit")

GIT_HARMLESS_SETTINGS = (
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase"
    r"|precomposeunicode|autocrlf|eol|safecrlf|quotepath|abbrev|whitespace|longpaths|protect.*)",
    r"(branch|user|color|advice|push|pull|rebase|rerere|fetch|status|tag|index)\..*",
    r"gc\.auto|init\.defaultbranch",
    r"remote\..*\.(url|pushurl|fetch|push|tagopt|prune|mirror|gh-resolved)",
    r"merge\.(conflictstyle|ff|renames|log|stat)",
    r"diff\.(algorithm|renames|colormoved|mnemonicprefix|noprefix|context|indentheuristic)",
    r"extensions\.(worktreeconfig|objectformat|refstorage|compatobjectformat|preciousobjects)",
)
"""Settings of a repository that name no program and no other place. With any further one, reading
with git is asked about."""

HARMLESS_VARIABLES = _words(
    "CI NO_COLOR FORCE_COLOR CLICOLOR NODE_ENV LC_ALL LANG COLUMNS LINES RUST_BACKTRACE "
    "PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE DEBIAN_FRONTEND GIT_PAGER_IN_USE"
)
"""Variables that name no program and no file; a command may set them."""

PRINTERS = _words("cal factor free groups hexdump lscpu pgrep ps strings uptime")
"""Programs that only print, but more than the project's files: a rule for any words is offered."""

MAKERS = _words("mkdir touch")
"""Programs that create something empty: a rule for any words in the project is offered."""

SUBCOMMANDS = (
    _pairs("git", " ".join(GIT_MAKES | GIT_READS.keys() - {"grep"}))
    | _pairs("docker", "images logs ps")
)  # fmt: skip
"""Like PRINTERS and MAKERS, for programs whose second word names the action."""

REMOVERS = _words(
    "rm rmdir unlink mv cp ln install shred truncate dd chmod chown chgrp chattr setfacl tee "
    "mkfs fdisk parted wipefs kill killall pkill reboot shutdown halt poweroff mount umount "
    "userdel usermod passwd iptables rsync curl wget"
)
"""Programs that destroy, overwrite or fetch: no rule for any words, and an exact one counts only
where the command starts."""

SHELL_WORDS = _words(
    "if then else elif fi case esac for select while until do done in function time coproc . : "
    "alias bg bind break builtin caller command compgen complete compopt continue declare dirs "
    "disown enable eval exec exit export fc fg getopts hash help history jobs kill let local "
    "logout mapfile popd printf pushd read readarray readonly return set shift shopt source "
    "suspend test times trap typeset ulimit umask unalias unset wait"
)
"""Bash keywords and built-ins, except those that only print or inspect. `printf -v` and `test -v`
evaluate a name, which may come from a file that is called `x[$(evil)]`."""

RUNNERS = SHELL_WORDS | _words(
    # shells, and programs that switch the user or machine
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh yash nu pwsh powershell xonsh busybox "
    "toybox sudo doas su runuser setpriv pkexec gosu su-exec chpst setuidgid ssh mosh sshpass "
    "rsync scp sftp telnet nc ncat socat machinectl "
    # programs that run some of their arguments
    "arch env xargs parallel nohup nice ionice renice chrt taskset timeout gtimeout stdbuf "
    "unbuffer setsid setarch linux32 linux64 numactl catchsegv watch entr flock script "
    "scriptreplay expect screen tmux at batch crontab systemd-run systemctl start-stop-daemon "
    "daemon daemonize dbus-launch dbus-run-session xvfb-run run-parts chroot fakeroot unshare "
    "nsenter bwrap firejail proot prlimit cgexec capsh ltrace strace perf gdb lldb valgrind ld.so "
    "ld-linux.so.2 ld-linux-x86-64.so.2 hyperfine direnv dotenv find fd fdfind rg xdg-open open "
    "less more man vi vim nvim view ex ed emacs nano pico rlwrap "
    # languages whose arguments may be a program
    "awk gawk mawk nawk sed gsed php lua luajit tclsh wish java jshell groovy scala kotlin ghc "
    "runghc erl elixir iex julia Rscript R osascript gcc g++ cc c++ clang clang++ tcc m4 bc dc "
    "sqlite3 psql mysql "
    # programs with an option to run another
    "tar gtar bsdtar zip 7z cpio sort split "
    # build tools, package managers and clients: variables, settings, plug-ins or another shell
    "make gmake bmake just task rake cmake ctest meson ninja ant mvn mvnw gradle gradlew sbt bazel "
    "npm pnpm yarn bun cargo go dotnet mix pip pip3 uv poetry pdm hatch rye conda mamba bundle "
    "composer brew apt apt-get apt-cache aptitude yum dnf nix guix kubectl oc helm "
    # checkers: settings and plug-ins with code, another interpreter, a file for the report
    "black eslint flake8 isort jest mocha mypy prettier pylint pyright pytest py.test ruff tsc "
    "vitest tox nox "
    # programs that fetch a program and run it
    "npx pnpx bunx uvx pipx nix-shell vagrant ansible ansible-playbook dpkg rpm xcrun"
)
"""Programs that may run another one, whatever their first words: patterns would allow anything."""

GROUPS = _words(
    "git docker podman nerdctl docker-compose gh terraform python python2 python3 pypy pypy3 "
    "ipython node nodejs deno ruby irb perl rustup apk pacman snap flatpak"
)
"""Programs whose second word names the action: no pattern without it."""

RUNNING_GROUPS = (
    _pairs("git", "bisect clone config difftool fetch filter-branch grep ls-remote mergetool pull")
    | _pairs("git", "push rebase submodule")
    | _pairs("docker", "compose container exec run")
    | _pairs("podman", "compose container exec run")
    | _pairs("deno", "eval run")
    | _pairs("gh", "alias extension")
)
"""Like RUNNERS, for two words: a pattern must name the third word, too."""
