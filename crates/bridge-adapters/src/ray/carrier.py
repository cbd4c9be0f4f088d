# This job sends its listed files by itself. The URLs in here are as good as keys until they end: do not pass it on.
import base64
import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.parse

CARGO = json.loads(base64.b64decode("@CARGO@"))
PIECE = 1 << 20
# Seconds that may be lost on failures, for all files together: a store that comes back soon must not cost the results
# of days, and one that does not must not keep the cluster. Ray waits 3 seconds for a job that was stopped.
PATIENCE = 300
PATIENCE_STOPPED = 2
# How long nothing may move before a transfer counts as failed.
SILENT = 120


class Patience:
    left = 0.0
    stopped_at = None

    def allow(self, seconds):
        stopped = self.stopped_at is not None and time.monotonic() - self.stopped_at < 60
        self.left = min(seconds, PATIENCE_STOPPED) if stopped else seconds

    def stop(self, *_):
        self.stopped_at = time.monotonic()
        self.allow(PATIENCE_STOPPED)


patience = Patience()


def say(text):
    print("bridge:", text, file=sys.stderr, flush=True)


def put(url, body, size):
    parts = urllib.parse.urlsplit(url)
    # One that is given up may not take longer than what is left.
    connecting, silent = (max(1, min(longest, patience.left)) for longest in (20, SILENT))
    if parts.scheme == "https":
        context = ssl.create_default_context(cadata=CARGO["authorities"])
        connection = http.client.HTTPSConnection(parts.netloc, timeout=connecting, context=context, blocksize=PIECE)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=connecting, blocksize=PIECE)
    try:
        connection.connect()
        connection.sock.settimeout(silent)
        name, value = CARGO["mark"]
        headers = {"Content-Length": str(size), name: value}
        try:
            connection.request("PUT", f"{parts.path}?{parts.query}", body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError) as broken:
            # A store that refuses does not wait for the end of the body.
            try:
                status = answer(connection)
            except (OSError, http.client.HTTPException):
                raise broken from None
        else:
            status = answer(connection)
        return "" if status // 100 == 2 else f"status-{status}"
    finally:
        connection.close()


def answer(connection):
    response = connection.getresponse()
    # What S3 calls a connection that was silent for a while.
    if response.status == 400 and b"<Code>RequestTimeout</Code>" in response.read(4096):
        return http.client.REQUEST_TIMEOUT
    return response.status


class Changed(OSError):
    pass


class Beginning:
    """So many bytes of a file that someone may still write to."""

    def __init__(self, file, size):
        self.file, self.left = file, size
        file.seek(0)

    def read(self, most):
        piece = self.file.read(min(most, self.left))
        # Otherwise the store would wait for what never comes.
        if self.left and not piece:
            raise Changed
        self.left -= len(piece)
        return piece


def may_pass(trouble):
    if not trouble.startswith("status-"):
        return True
    status = int(trouble[len("status-"):])
    return status in (307, 408, 429) or status >= 500


def look(path):
    try:
        return os.stat(path)
    except OSError:
        return None


def version(found):
    """Which file it is and when it was last changed."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def attempt(send):
    began = time.monotonic()
    try:
        trouble = send()
    # The text of an error may hold the address; its kind does not.
    except (OSError, http.client.HTTPException) as error:
        trouble = type(error).__name__
    if trouble and may_pass(trouble):
        # One that was broken off has gone on until the store fell silent.
        patience.left -= min(time.monotonic() - began, SILENT)
    return trouble


def rest(pause):
    until = time.monotonic() + pause
    while patience.left > 0 and time.monotonic() < until:
        time.sleep(0.25)
        patience.left -= 0.25
    return min(2 * pause, 10)


def tried(send):
    trouble, pause = "given-up", 1
    while patience.left > 0:
        trouble = attempt(send)
        if not trouble or not may_pass(trouble):
            break
        pause = rest(pause)
    return trouble


class Output:
    trouble = "given-up"
    seen = digest = None
    changes = 0

    def __init__(self, name, path, url):
        self.name, self.path, self.url = name, path, url

    def why_not(self, before):
        found = look(self.path) if os.path.isfile(self.path) else None
        if found is None:
            say(f"there is no file {self.path} to send")
            return f"missing - - {self.name}"
        if version(found) == before.get(self.path):
            say(f"{self.path} was there before this job started and is not its own; it is not sent")
            return f"stale - - {self.name}"
        return f"large {found.st_size} - {self.name}" if found.st_size > CARGO["largest"] else None

    def failed(self):
        say(f"{self.path} could not be sent ({self.trouble})")
        return f"failed {self.trouble} - {self.name}"

    def told(self):
        """What came of a try; None if there may be another."""
        if patience.left <= 0:
            return self.failed()
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                if version(found) != self.seen:
                    digest, beginning = hashlib.sha256(), Beginning(file, found.st_size)
                    for piece in iter(lambda: beginning.read(PIECE), b""):
                        digest.update(piece)
                    self.seen, self.digest = version(found), digest.hexdigest()
                self.trouble = attempt(lambda: put(self.url, Beginning(file, found.st_size), found.st_size))
                if not self.trouble and version(os.fstat(file.fileno())) != self.seen:
                    raise Changed
        except Changed:
            self.trouble = Changed.__name__
        except OSError as error:
            self.trouble = type(error).__name__
            return self.failed()
        if not self.trouble:
            return f"sent {found.st_size} {self.digest} {self.name}"
        self.changes += self.trouble == Changed.__name__
        return None if may_pass(self.trouble) and self.changes < 3 else self.failed()


def left_by_others():
    """Listed files that lie there already. What is in the job's folder came with it."""
    folder = os.path.join(os.path.realpath(os.getcwd()), "")
    paths = () if CARGO["again"] else (path for _, path, _ in CARGO["outputs"])
    outside = ((path, look(path)) for path in paths if not os.path.realpath(path).startswith(folder))
    return {path: version(found) for path, found in outside if found is not None}


def send_all(before):
    outputs = [Output(*output) for output in CARGO["outputs"]]
    lines = [output.why_not(before) for output in outputs]
    pause = 1
    # Each has one try before any has a second: one that always fails must not cost those after it.
    while True:
        for place, output in enumerate(outputs):
            lines[place] = lines[place] or output.told()
        if all(lines):
            return lines
        pause = rest(pause)


def report(lines):
    text = "".join(line + "\n" for line in lines).encode()
    if tried(lambda: put(CARGO["report"], text, len(text))):
        say("the account of what was sent could not be sent")


def main():
    if time.time() >= CARGO["expires"]:
        say("the URLs for its data ended before this job started")
        return CARGO["expired"]
    lines = ["start"]
    patience.allow(60)
    report(lines)
    if CARGO["script"] is not None:
        try:
            # Beside the inputs, so that it can import them.
            with open(CARGO["file"], "wb") as file:
                file.write(base64.b64decode(CARGO["script"]))
        except OSError as error:
            say(f"the script could not be written ({error.strerror})")
            return CARGO["no_place"]
    before = left_by_others()
    # A stop reaches the whole group; this process goes on to send what there is.
    signal.signal(signal.SIGTERM, patience.stop)
    command = ["/bin/sh", "-c", CARGO["command"] + ' "$@"', "sh", *sys.argv[1:]]
    restore = lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = subprocess.run(command, preexec_fn=restore, check=False).returncode
    code = 128 - code if code < 0 else code
    patience.allow(PATIENCE)
    lines += send_all(before)
    # A store that is back by now should hear what it has missed.
    patience.allow(60)
    report([*lines, f"end {code}"])
    return code


sys.exit(main())
