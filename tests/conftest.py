"""Put the folder that holds knaif.py first on sys.path, whatever the current folder is."""
import os
import sys

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
