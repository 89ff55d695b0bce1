"""What programs that are talked to by lines share: how much they may say, and their log."""

import time

from zot.children.lineprocess import Bucket
from zot.children.logfile import LogFile


def test_a_bucket_gives_a_burst_and_then_a_rate():
    bucket = Bucket(rate=50, burst=3)
    assert [bucket.take() for _ in range(3)] == [0, 0, 0]
    wait = bucket.take()
    assert 0 < wait <= 0.02
    time.sleep(wait)
    assert bucket.take() == 0


# --- files and environment -------------------------------------------------------------------


def test_a_log_that_cannot_be_written_harms_nobody(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    log = LogFile(tmp_path / "logs" / "ext-x.log", 100)
    log.note("lost")
    log.close()


def test_a_log_is_not_written_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "ext-x.log").symlink_to(victim)
    LogFile(tmp_path / "ext-x.log", 100).note("attack")
    assert victim.read_text() == "mine"


def test_two_writers_rotate_one_log_once(tmp_path):
    logs = [LogFile(tmp_path / "ext-x.log", 100) for _ in range(2)]
    for log in logs:
        log.write(b"x" * 60 + b"\n")
    logs[0].write(b"after\n")
    logs[1].write(b"after\n")
    for log in logs:
        log.close()
    kept = "".join(path.read_text() for path in tmp_path.iterdir())
    assert kept.count("after") == 2
