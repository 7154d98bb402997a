"""Put the folder that holds knaif.py first on sys.path, whatever the current folder is."""
import os
import random
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Ran:
    """How one line ended: exit code and both streams as text."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def data(self):
        """Standard output, which must be one strict JSON document."""
        import json

        def refuse(word):
            raise ValueError(word)

        return json.loads(self.out, parse_constant=refuse)

    @property
    def failure(self):
        """The failure envelope on standard error; standard output must be empty."""
        import json

        assert self.out == "", self.out
        return json.loads(self.err)

    def __repr__(self):
        return "<exit %d, out %r, err %r>" % (self.code, self.out, self.err)


def run_app(app, *tokens, stdin=None, environ=None, cwd=None, tty=None, cancel=None):
    """Run one line of an application in process. stdin: bytes that are piped in, or None for a closed stream."""
    import io

    import knaif

    out, err = io.BytesIO(), io.BytesIO()
    env = knaif.Env(
        argv=["prog", *tokens], stdin=None if stdin is None else io.BytesIO(stdin), stdout=out, stderr=err,
        environ=environ or {}, cwd=cwd or os.getcwd(), tty=tty or (lambda: None),
    )
    code = app.run(list(tokens), env=env, cancel=cancel)
    return Ran(code, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8"))


#: How often each random test runs, each time with other numbers: `make fuzz` asks for more.
ROUNDS = int(os.environ.get("KNAIF_FUZZ_ROUNDS") or 1)


@pytest.fixture(params=range(ROUNDS))
def rng(request):
    """Random numbers that are the same at each run of the same test and round."""
    return random.Random("%s %d" % (request.node.originalname, request.param))


def pytest_configure(config):
    config.addinivalue_line("markers", "fuzz: draws random input; `make fuzz` runs these for longer")


def pytest_collection_modifyitems(items):
    for item in items:
        if "rng" in getattr(item, "fixturenames", ()):
            item.add_marker("fuzz")
