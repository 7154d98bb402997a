#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# knaif 0.1.0 (unreleased)
"""knaif: typed functions become a command line, a line protocol, MCP tools and a guarded boundary for models.

One file, standard library only, Python 3.9 to 3.14. Copy it beside your program:

    import knaif as nk
    app = nk.App("hello", version="1.0.0", expose=("cli",))
    @app.command
    def greet(name: str, times: int = 1) -> str:
        return " ".join(["hello", name] * times)
    app.main()

Exit codes: 0 success, 1 refused or failed, 2 unauthorized, 3 forbidden or outside the sandbox, 4 not found,
5 conflict, 6 rate limited, 7 timeout, 8 confirmation required, 9 outcome unknown, 64 usage, 70 faulty
registration, 130 interrupted, 141 the reader of the output went away. The whole table: ERRORS_EXIT_CODES.

Environment: KNAIF_TRACE=1 prints the traceback of an unexpected exception on stderr, COLUMNS sets the width of help.
Nothing else is read that your own program did not name.

SECTIONS
  LIMITS   every number with unit and reason
  ERRORS   Error, RegistrationError, the one table of codes and exit codes
  JSON     strict loads, dumps, canonical form, digests, JSON pointer
  ENV      Env: argv, streams, environ, cwd, clock, sleep, random; human() for text shown to people
  FILES    atomic and exclusive writes, private files, bounded reads, the lock, the journal
  PATHS    the sandbox: resolve below a root, open below a root
  FORMAT   formats, ECMA-262 patterns
  SCHEMA   JSON Schema 2020-12 compiled to closures; issues as data
  TYPES    Arg, Opt, Field, Shape; text -> JSON values; JSON <-> typed Python values
  SHAPES   annotations, functions, options and raw schemas -> Shapes
  REG      Command, Call, Outcome, Ctx, Service, command, native, the table of framework options, Registry, names
  ARGV     tokens to values, never argparse
  CALL     Engine: find, admit, run; Admitted; Approval
  VIEWS    count-by, sum, by, sort, top, table over a result; pure
  HELP     top-level and per-command help, search, completion scripts; pure text from the registry
  FETCH    guarded HTTP; downloads
  WAIT     --wait: ask for an asynchronous result until it is final
  STREAM   Invoker, line protocol
  BATCH    resumable batch
  PROFILE  named profiles
  PLAN     envelope, references, approval, execution
  WORDS    sentences of English: tokens, numbers, dates, times, paths
  PLANNER  prompts, grammar, model back ends, evaluation
  LEXICAL  LexicalPlanner: plans without a model
  ADOPT    from_click, from_argparse, argv emission
  APP      App: puts the sections together, routing, output, exit
  MAIN     the commands of `python3 knaif.py`, main(), the guard

Stability: the names in __all__ keep their meaning within a major version; everything else may change.
The licence text stands at the end of the file.
"""
from __future__ import annotations

import sys

if sys.version_info < (3, 9):
    _head_old = "Python 3.9 or newer is needed; this is Python %d.%d, %s" % (
        sys.version_info[0], sys.version_info[1], sys.executable)
    if __name__ == "__main__":
        sys.exit(_head_old)
    raise ImportError(_head_old)

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated and sys.path:
    # Run as a script, the folder of this file (or the current one) would come first: a json.py beside a download
    # must not be imported in the standard library's place.
    del sys.path[0]

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import IO, Any

__version__ = "0.1.0"

__all__ = [
    "Error", "RegistrationError", "exit_code",  # ERRORS
    "UNCONFINED",  # PATHS
    "Issue", "Validator",  # SCHEMA
    "Arg", "Opt",  # TYPES
    "schema_of",  # SHAPES
    "Cancel", "Outcome", "Ctx", "Command", "command", "native", "Service", "Registry",  # REG
    "Lifecycle", "Hooks", "AuthHook",  # CALL
    "view",  # VIEWS
    "fetch",  # FETCH
    "Wait",  # WAIT
    "Invoker", "stream_command",  # STREAM
    "batch_command",  # BATCH
    "config_dir", "ProfileStore", "profile_commands",  # PROFILE
    "Plan", "PlanResult",  # PLAN
    "PlanRequest", "Planner", "ScriptedPlanner", "OllamaPlanner", "ChatPlanner", "evaluate",  # PLANNER
    "LexicalPlanner",  # LEXICAL
    "from_click", "from_argparse", "emit_argv",  # ADOPT
    "App", "ask_command", "completion_command",  # APP
]


# region LIMITS -- every number with unit and reason
# needs: (nothing)
# A bare number in code hides a decision. Each one stands here once, named <SECTION>_<WHAT>[_<UNIT>], and says on
# its own line what it counts and why it has this size. The sections below read it and never repeat it; what is a
# fact rather than a limit (a code point, a mask, the days of a year) stays where it is used.

# JSON
JSON_DEPTH_LEVELS = 128  # nesting of arrays and objects at every door: far above real data, far below the C stack
JSON_INT_DIGITS = 4300  # CPython's own limit for int(text); counted before int() so that no door raises ValueError
JSON_DOOR_BYTES = 8 * 1024 * 1024  # one value or line at a door: more is a file, not an argument
JSON_SHOWN_CHARACTERS = 60  # how much of a value a message shows

# ENV
ENV_STDIN_BYTES = 8 * 1024 * 1024  # what piped standard input may hold: the same as one value at a door
ENV_STDIN_FIRST_BYTE_SECONDS = 0.25  # for piped input: long for a running producer, short for a pipe nobody writes to
ENV_CHUNK_BYTES = 65536  # the size of a pipe: one read takes all there is
ENV_RETRY_SECONDS = 0.001  # between two attempts at a full pipe whose readiness nobody can tell
ENV_ANSWER_CHARACTERS = 4096  # a terminal in line mode holds no longer line

# ERRORS
ERRORS_QUOTED_CHARACTERS = 60  # how much of a token a refusal repeats: enough to recognise it, too little to flood

# FILES
FILES_STAGE_NAMES = 1000  # names a process tries for an unfinished file: more than it has threads or leftovers
FILES_SHOWN_CHARACTERS = 200  # of a path in a command to run: cut, it would be another path
FILES_LOCK_PAUSE_SECONDS = 0.1  # between two looks at a lock that is waited for
FILES_BLOCK_BYTES = 256 * 1024  # one read of a journal: many records, and still in a processor's cache
FILES_PAGE_BYTES = 4096  # one read for a single record: holds most of them
FILES_SECTOR_BYTES = 512  # the smallest unit that a disk writes, and so loses

# PATHS
PATHS_COMPONENT_BYTES = 255  # one name between slashes: NAME_MAX of every common file system
PATHS_TEXT_BYTES = 4096  # one path below a sandbox: PATH_MAX of Linux, which would refuse a longer one itself
PATHS_NAME_CHARACTERS = 64  # a name that becomes a file name: room for any word, and for an ending

# TYPES
TYPES_LEVELS = 64  # annotations or compositions inside each other, text that stands for text: more refers to itself
TYPES_ALTERNATIVES = 256  # branches of one schema that reading looks at: past that, text stays text
TYPES_NOTE_CHARACTERS = 200  # how much of an annotation, or of a constructor's own words, a message shows
TYPES_EXPONENT_DIGITS = 4  # of a decimal: an integer made of it stays small enough to print

# CALL
CALL_MASK = "***"  # what stands for a secret wherever a call is shown
CALL_SALT_BYTES = 16  # random bytes that keep a secret from being guessed from a digest
CALL_STATUS_MAX = 255  # the largest exit status POSIX carries

# VIEWS
VIEWS_BLOCK_BYTES = 32 * 1024  # one read of a stream of records: its text and values stay in a processor's cache
VIEWS_BLOCK_TRIES = 8  # blocks in a row that could not be taken fast: the next ones could not either
VIEWS_CUT_CHARACTERS = 16  # a fault so near to the end of a block may be a word that was cut in two
VIEWS_NAMES_SHOWN = 20  # fields listed beside one that no record has
VIEWS_SORT_SLACK = 1000  # records kept beyond the leading ones before they are sorted and cut
VIEWS_SUM_DIGITS = 6000  # of an exact total: an integer of 4,300 digits, the smallest float, and room for carries

# HELP
HELP_WIDTH_MIN_COLUMNS = 40  # a narrower terminal gets this page all the same: below it columns stop making sense
HELP_WIDTH_MAX_COLUMNS = 100  # longer lines are hard to read, however wide the screen is
HELP_LABEL_COLUMNS = 34  # the left column of a table; a longer label has a line of its own
HELP_SUMMARY_COLUMNS = 72  # one command in a list: one sentence, one line
HELP_NOTE_CHARACTERS = 300  # a reason from outside, on one line
HELP_PAGE_CHARACTERS = 16_000  # a description: more than any person reads, too little to flood a terminal
HELP_FIELD_CHARACTERS = 1_000  # the help text of one argument
HELP_TYPE_CHARACTERS = 400  # a type label: past that it explains nothing
HELP_WORD_CHARACTERS = 60  # one name, choice, default or bound
HELP_CHOICES = 24  # choices and branches listed in a type; the rest is counted
HELP_TYPE_NODES = 100  # schemas looked at for one label: one may refer to itself, and each takes room on the stack
HELP_MEMBER_LEVELS = 4  # dotted options below one field
HELP_MEMBER_ROWS = 60  # dotted options listed for one field
HELP_COMPLETION_WORDS = 500  # choices a shell offers at one place

# APP
APP_UTTERANCE_CHARACTERS = 1000  # of a sentence that are compared with names of commands
APP_UTTERANCE_WORDS = 12  # of it: the act stands near the beginning
APP_NAMES_SHOWN = 5  # commands named where none fits a sentence
APP_COLUMNS_DIGITS = 4  # of a COLUMNS that is believed
APP_PROTOCOL = 1  # version of what another copy of this file may call on an App
APP_QUESTION_CHARACTERS = 2000  # of a value in a confirmation question: a screen, which a person may still read

# REG
REG_NAME_CHARACTERS = 64  # what MCP clients and model APIs accept as the name of a tool
REG_WRAPPER_LEVELS = 32  # decorators on one function; more is a cycle of __wrapped__
REG_NEAR_NAMES = 3  # suggestions for one mistyped name: more would be a list, not a hint
REG_NEAR_CANDIDATES = 2_000  # names compared with a mistyped one, so that a huge surface answers at once
REG_PROGRESS_BAR_CHARACTERS = 24  # a bar of four steps per sixth
REG_PROGRESS_LINE_CHARACTERS = 79  # one line of the narrowest usual terminal, which must not wrap
REG_PROGRESS_PAUSE_SECONDS = 0.1  # between two drawings: smooth to the eye, nothing beside real work

# MAIN
MAIN_SECRET_BYTES = 4  # of a number that a file would have to guess to pass for lines of JSON
MAIN_NEAR_RATIO = 0.5  # how alike two names are for difflib before one is a suggestion for the other
MAIN_QUOTED_CHARACTERS = 200  # of a path, or of what a program said when it could not be imported: one line of it

# ARGV
ARGV_FAULTS = 20  # sentences about one line: nobody reads more, and each may cost a search for near names
ARGV_SHORT_DIGITS = 16  # a number of fewer characters is exact and finite whatever its digits are

# SCHEMA
SCHEMA_ISSUES = 20  # reported at once: a person fixes a few, a program needs no flood
SCHEMA_MESSAGE_ISSUES = 5  # of them in the one sentence
SCHEMA_CHOICES = 10  # values of an enum that a message lists
SCHEMA_NAMES = 500  # declared names compared for a suggestion: difflib is slow
SCHEMA_NAME_CHARACTERS = 60  # a key shown without quotes or looked for among the names
SCHEMA_STEPS = 2_500_000  # values gone into and alternatives tried in one check: about 1 s, room for 8 MiB of JSON
SCHEMA_UNION_STEPS = 16  # for each alternative of a union that fits none: to weigh its faults takes that long
SCHEMA_REGEX_STEPS = 12  # for each character of a text of format regex
SCHEMA_NODES = 100_000  # schemas in a schema, counted once for every set of dynamic anchors they are reached under
SCHEMA_DEPTH_LEVELS = 1000  # keys from the root of a schema, or from a reference, to a part: two or three a level
SCHEMA_HOPS = 64  # references followed one after the other

# FETCH
FETCH_WHOLE = 200  # the one status whose body is a whole file
FETCH_SECONDS_BITS = 64  # of a deadline given as an integer: more no clock can count
FETCH_URL_CHARACTERS = 8192  # servers refuse longer request lines themselves
FETCH_SHOWN_CHARACTERS = 200  # of a URL in a message: host and path of any that a person would read
FETCH_REASON_CHARACTERS = 120  # of what the system or a server says of a failure
FETCH_HEADERS_SECONDS = 15  # look-ups, connections, TLS and redirects together, up to the last header
FETCH_BODY_SECONDS = 120  # from the headers to the last byte
FETCH_SLICE_SECONDS = 0.25  # one wait on the network: so soon does a cancelled call end
FETCH_BODY_BYTES = 8 * 1024 * 1024  # a document held in memory: the same as one value at a door
FETCH_REDIRECTS = 5  # followed for one request: more is a loop or a game
FETCH_HEADER_BYTES = 64 * 1024  # all header lines of one answer: eight times what common servers send
FETCH_HEADER_LINES = 200  # twice what http.client takes
FETCH_INTERIM_ANSWERS = 8  # 1xx answers before the real one
FETCH_CHUNK_BYTES = 64 * 1024  # one read, and one step of decompression: memory stays this small
FETCH_FRAME_BYTES = 1024  # the line before a chunk: a size, and room for extensions that nobody sends
FETCH_FRAME_DIGITS = 15  # of a chunk's size or a Content-Length: fits 64 bits
FETCH_ADDRESSES = 8  # of one name that are tried, sharing the time left
FETCH_FILE_BYTES = 100 * 1024 * 1024  # one downloaded file
FETCH_FILES_BYTES = 1024 * 1024 * 1024  # all files of one call
FETCH_FILES = 1000  # files of one call
FETCH_NAME_BYTES = 200  # of a file name: below every NAME_MAX, with room for a number
FETCH_NAME_ENDING_BYTES = 20  # of its ending, which survives a cut; a longer one is no ending
FETCH_NAME_NUMBERS = 10_000  # tried after a taken name: a folder full of them is not ours to fill

# WAIT
WAIT_BACKOFF_SECONDS = (2, 3, 5, 5, 8, 10)  # pauses between polls: most jobs end within the first, the last repeats
WAIT_SECONDS = 600  # before a wait gives up, unless the program or --wait-timeout says otherwise
WAIT_LONGEST_SECONDS = 1_000_000_000  # thirty years: more is the same to a person, and too much for a clock
WAIT_JITTER = 0.1  # part by which a pause varies, so that many waits begun together do not poll together
WAIT_SLICE_SECONDS = 0.25  # one wait for anything: so soon does a cancelled call end

# STREAM
STREAM_LINE_BYTES = 8 * 1024 * 1024  # one line: the same as one value at a door
STREAM_ID_CHARACTERS = 256  # of an id, or digits: room for any key a program makes, small enough to repeat and to index

# PROFILE
PROFILE_BYTES = 1024 * 1024  # one profile: an address, credentials, a chain of certificates
PROFILE_LOCK_SECONDS = 10  # a change by another process is waited for: its write takes milliseconds
PROFILE_STDIN_SECONDS = 600  # for the first byte where --stdin asks for it: a password manager may ask its owner first
PROFILE_NAMES_SHOWN = 20  # names listed in a refusal

# BATCH
BATCH_SALT_BYTES = 16  # random bytes that keep the arguments of a call from being guessed from its digest
BATCH_SHARDS = 100_000  # parts of one input: more than any scheduler starts
BATCH_SHARD_DIGITS = 6  # of a number that names one
BATCH_IDS_SHOWN = 100  # ids of unknown outcome in a report; the rest is counted

# PLAN
PLAN_STEPS = 32  # in one plan: more is a program, and programs are written by people
PLAN_BYTES = 64 * 1024  # of the object: a few pages of text as an argument
PLAN_DEPTH_LEVELS = 32  # arrays and objects inside each other in a plan, the four of the envelope among them
PLAN_TEXT_CHARACTERS = 1024 * 1024  # of a model's whole answer, thinking included
PLAN_NODES = 10_000  # values in the arguments of a step once results stand in them
PLAN_ARGS_BYTES = 1024 * 1024  # of the same as text
PLAN_INDEX_DIGITS = 9  # of the place in an array: more no result has
PLAN_TOOLS_SHOWN = 20  # names listed where nothing is near to the one that was given

# WORDS
WORDS_UTTERANCE_CHARACTERS = 2000  # a sentence that is planned without a model: longer ones are documents
WORDS_TOKENS = 200  # words of it: more is no sentence

# PLANNER
PLANNER_ANSWER_BYTES = 1024 * 1024  # what a model server may answer: a plan has 64 KiB, its reasoning may be longer
PLANNER_SECONDS = 120  # one inference, the loading of a model included
PLANNER_CHOICES_SHOWN = 40  # of one argument in a prompt; the schema has them all
PLANNER_NANOSECONDS = 1_000_000_000  # of a second
PLANNER_SHOWN_CHARACTERS = 200  # of a sentence or plan in the text of an evaluation
PLANNER_SHOWN_ROWS = 40  # rows of one kind in the text of an evaluation
PLANNER_BAD_RATE = 0.05  # part of sentences that may be acted on wrongly before an evaluation fails

# LEXICAL
LEXICAL_UNKNOWN_TAKES = 0.2  # from a reading, each
LEXICAL_UNKNOWN_CHANGING = 0.75  # the same where something is changed
LEXICAL_UNKNOWN = 1.34  # words without an explanation for each slot that is filled
LEXICAL_MARGIN_READONLY = 0.3  # the same where it only reads
LEXICAL_PRELUDE_TOKENS = 10  # before the verb of a sentence: I was wondering if you could
LEXICAL_TIE_TOKENS = 5  # between a value and the word that ties it to its slot: the due date of the task is
LEXICAL_TEXT_TOKENS = 60  # of one free text: a title or a prompt, not a page
LEXICAL_QUERY_TOKENS = 4  # of a free text that may be left out and that no quotes mark
LEXICAL_NOUN_TOKENS = 5  # between the verb of a sentence and the noun of what it makes
LEXICAL_MARGIN = 1.0  # by which a reading must lead: less than one keyword
LEXICAL_MARGIN_DESTRUCTIVE = 3.0  # the same where it destroys something
LEXICAL_KIN_PART = 0.6  # of a word's weight, for another word of the same act
LEXICAL_EPOCH_MIN = 100_000  # seconds since 1970 that a person may mean by a number
LEXICAL_SCORE = 1.0  # that a reading needs at all

# ADOPT
ADOPT_LEVELS = 16  # groups inside each other; more is a group that contains itself
ADOPT_COUNT = 100  # how often a counted option can stand on a line
ADOPT_WORDS = 1_000_000_000  # the most words of a positional that takes any number
# endregion LIMITS


# region ERRORS -- Error, RegistrationError, the one table of codes and exit codes
# needs: (nothing)
# Every refusal is an Error: a code for programs, one sentence for people, data for both. The tree:
#
#     Exception
#       Error                  a refusal with a code of the table below (or of the application)
#         RegistrationError    the program itself is faulty: exit 70
#         _ErrorsUsage         the words of a command line cannot be read: exit 64, plain text
#
# Codes the table does not name exit with 1; an application's exit_codes are merged over it. Where no value will do,
# not even None, an _ErrorsMark stands.

ERRORS_EXIT_CODES = {
    "BAD_REQUEST": 1,
    "CONFIRMATION_REQUIRED": 8,
    "CONFLICT": 5,
    "CONNECTION_REQUEST_FAILED": 1,
    "CONNECTION_RESPONSE_TOO_LARGE": 1,
    "CONNECTION_TIMEOUT": 7,
    "DOWNGRADE_REFUSED": 1,
    "FORBIDDEN": 3,
    "INTEGRITY_ERROR": 1,
    "INTERNAL_SERVER_ERROR": 1,
    "JOURNAL_DAMAGED": 1,
    "LOCKED": 1,
    "NOT_FOUND": 4,
    "OUTCOME_UNKNOWN": 9,
    "OUTPUT_FAILED": 1,
    "PLAN_INVALID": 1,
    "RATE_LIMITED": 6,
    "READER_GONE": 141,
    "REGISTRATION_ERROR": 70,
    "REQUEST_ABORTED": 130,
    "REQUEST_TIMEOUT": 7,
    "SANDBOX_ESCAPE": 3,
    "SIGNATURE_REFUSED": 1,
    "TIMEOUT": 7,
    "UNAUTHORIZED": 2,
    "UPSTREAM_TOOL_ERROR": 1,
    "USAGE": 64,
    "VALIDATION_ERROR": 1,
    "WAIT_FAILED": 1,
}
ERRORS_EXIT_OTHER = 1  # a code that no table names

#: Codes after which the same call may succeed unchanged; everything else needs another call or another state.
ERRORS_RETRYABLE = frozenset(("RATE_LIMITED", "REQUEST_TIMEOUT"))


class Error(Exception):
    """Refuse a call: ``raise nk.Error("NOT_FOUND", "no task 7")``.

    code: an upper-case word; the table ERRORS_EXIT_CODES or the application's ``exit_codes`` gives its exit code.
    message: one sentence for people. details: JSON-ready data for programs. hint: what to do next.
    retryable: whether the same call may succeed later; by default true for RATE_LIMITED and REQUEST_TIMEOUT alone.
    relayed: whether another system refused and this error only carries its answer.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: object = None,
        hint: str | None = None,
        retryable: bool | None = None,
        relayed: bool = False,
    ) -> None:
        if not isinstance(code, str) or not isinstance(message, str) or not isinstance(hint, (str, type(None))):
            raise TypeError("Error takes a code and a message, both text, and a hint that is text or None")
        super().__init__(message)
        self.code = code  #: word that programs branch on
        self.message = message  #: one sentence
        self.details = details  #: JSON-ready value, or None
        self.hint = hint  #: what to do next, or None
        self.retryable = code in ERRORS_RETRYABLE if retryable is None else retryable  #: may the same call be repeated
        self.relayed = relayed  #: the refusal of a remote system, not of the handler itself

    def to_wire(self) -> dict[str, object]:
        """Return the JSON object of this refusal: code, message, retryable, and details and hint where given. Pure."""
        wire: dict[str, object] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.details is not None:
            wire["details"] = self.details
        if self.hint is not None:
            wire["hint"] = self.hint
        return wire


class RegistrationError(Error):
    """The program is put together wrongly; the sentence names the function, the parameter and the remedy. Exit 70."""

    def __init__(self, message: str) -> None:
        super().__init__("REGISTRATION_ERROR", message)


class _ErrorsUsage(Error):
    """Words that cannot be read as a command line; every independent fault of the line, a sentence each. Exit 64."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("USAGE", "\n".join(faults))
        self.faults = list(faults)  #: one sentence each, in the order of the line


class _ErrorsMark:
    """What stands where any value could mean something else; it is told by its identity and shown by its name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


def exit_code(code: str, overrides: Mapping[str, int] | None = None) -> int:
    """Return the exit code of an error code: overrides first, then the table, else 1. Pure.

    >>> exit_code("NOT_FOUND"), exit_code("NOT_FOUND", {"NOT_FOUND": 44}), exit_code("constructor")
    (4, 44, 1)
    """
    if overrides is not None and code in overrides:
        return overrides[code]
    return ERRORS_EXIT_CODES.get(code, ERRORS_EXIT_OTHER)
# endregion ERRORS


# region JSON -- strict loads, dumps, canonical form, digests, JSON pointer
# needs: LIMITS
# Every JSON text that comes in passes _json_loads, every one that goes out _json_dumps; both fail by _JsonFault alone.
# Reading: RFC 8259 and nothing besides. Depth and surrogates are judged on the text before the scanner sees it, in
# linear time and without recursion; numbers and objects by hooks of the scanner.
# Writing: a copy of plain types is made, and making it names the faulty place; the C encoder writes the copy. `json`
# and `re` are imported only where text is really parsed.
# Plain values: None, bool, int, float, str, list, tuple (an array), dict with text keys; a subclass counts as its base.

JSON_INT_LIMIT = 10**JSON_INT_DIGITS  # the first integer that is too long
JSON_HASHED_BELOW = 2**60  # CPython hashes integers modulo 2**61 - 1: smaller ones cannot be made to collide
JSON_NO_STRUCTURE = bytes(range(256)).translate(None, b'[]{}"')
JSON_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # read as signed bytes: one level down, one level up
JSON_LONE_SURROGATE = r"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"
JSON_TEXT_TYPE = frozenset((str,))
JSON_SCALAR_TYPES = frozenset((str, int, float, bool, type(None)))
JSON_FIXED_TYPES = frozenset((str, bool, type(None)))
JSON_CONTAINER_TYPES = frozenset((dict, list, tuple))
JSON_KINDS = (
    (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (dict, "object"), ((list, tuple), "array")
)
#: What a terminal or a JavaScript reader acts on instead of showing: DEL, C1, line separators, bidirectional marks.
JSON_HIDDEN = (
    "\x7f" + "".join(map(chr, range(0x80, 0xA0)))
    + "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
#: How a message of json.decoder begins, and what ours says; all others are "an unexpected character".
JSON_SYNTAX = (
    ("Extra data", "text after the value"), ("Unterminated string", "a string without its closing quote"),
    ("Invalid control", "a control character in a string"), ("Invalid \\", "an unknown escape in a string"),
)


class _JsonFault(ValueError):
    """Text that is no strict JSON, or a value that has no JSON form; never holds any of the text."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason  #: a noun phrase: "a repeated key"
        self.position = position  #: index of the character in the text that was read, where it is known
        self.path: tuple[str | int, ...] = ()  #: keys and indexes from the root to the value that was to be written

    def __str__(self) -> str:
        if self.position is not None:
            return f"{self.reason} at character {self.position + 1}"
        return f"{self.reason} at {_json_show(_json_pointer(self.path))}" if self.path else self.reason


def _json_loads(data: str | bytes, *, max_bytes: int = JSON_DOOR_BYTES, max_depth: int = JSON_DEPTH_LEVELS) -> Any:
    """Return the value of one strict JSON text. Pure.

    data: text, or UTF-8 bytes without a byte order mark. max_bytes: size in UTF-8. max_depth: arrays and objects
    inside one another.
    Raises: _JsonFault for anything else than one value: repeated keys, NaN, Infinity, numbers that overflow a float,
    integers of too many digits, lone surrogates, nesting, size, text after the value.

    >>> _json_loads('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        raw = data.encode("utf-8") if isinstance(data, str) else data
        text = str(raw, "utf-8")
    except UnicodeEncodeError as fault:
        raise _JsonFault("a lone surrogate", position=fault.start) from None
    except UnicodeDecodeError as fault:
        before = len(str(data[: fault.start], "utf-8"))  # type: ignore[arg-type]
        raise _JsonFault("bytes that are not UTF-8", position=before) from None
    if len(raw) > max_bytes:
        raise _JsonFault(f"more than {max_bytes:,} bytes")
    if text.startswith("\ufeff"):
        raise _JsonFault("a byte order mark", position=0)
    if raw.count(b"[") + raw.count(b"{") > max_depth:
        _json_check_depth(raw, max_depth)
    import json.decoder
    import re

    # An escaped backslash begins no escape of its own; positions stay.
    lone = re.search(JSON_LONE_SURROGATE, text.replace("\\\\", "//")) if "\\u" in text else None
    if lone:
        raise _JsonFault("a lone surrogate", position=lone.start())
    try:
        return json.decoder.JSONDecoder(
            object_pairs_hook=_json_read_object,
            parse_constant=_json_refuse_constant,
            parse_float=_json_read_float,
            parse_int=_json_read_integer,
        ).decode(text)
    except json.decoder.JSONDecodeError as error:
        raise _json_syntax_fault(text, error.msg, error.pos) from None
    except _JsonFault:
        raise
    except (ValueError, RecursionError):  # the program lowered the interpreter's own limits below ours
        raise _JsonFault("more digits or levels than this program admits") from None


def _json_syntax_fault(text: str, message: str, position: int) -> _JsonFault:
    """Return the fault for a message of json.decoder, in words and at a position that are the same in every Python."""
    if message.startswith("Illegal trailing comma"):  # 3.13 points at the comma, earlier ones behind it
        position = len(text) - len(text[position + 1 :].lstrip(" \t\n\r"))
    if not text.strip(" \t\n\r"):
        return _JsonFault("no value")
    if position >= len(text):
        return _JsonFault("an unfinished value", position=len(text))
    reasons = [reason for start, reason in JSON_SYNTAX if message.startswith(start)]
    return _JsonFault(reasons[0] if reasons else "an unexpected character", position=position)


def _json_check_depth(raw: bytes, max_depth: int) -> None:
    """Refuse UTF-8 text that nests deeper than max_depth. Linear, no recursion.

    Right for every prefix that is valid JSON, and the scanner never gets beyond the first character that is not.
    """
    from itertools import accumulate

    marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(JSON_STEPS, JSON_NO_STRUCTURE)
    steps = b"".join(marks.split(b'"')[::2])  # every other piece is inside a string
    if max(accumulate(memoryview(steps).cast("b")), default=0) > max_depth:
        raise _JsonFault(f"more than {max_depth} levels")


def _json_read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members (object_pairs_hook of the decoder)."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _JsonFault("a repeated key")
    return members


def _json_read_integer(digits: str) -> int:
    """Return the integer; its digits are counted first, since int() takes quadratic time or raises for long ones."""
    if len(digits) - digits.startswith("-") > JSON_INT_DIGITS:
        raise _JsonFault(f"an integer of more than {JSON_INT_DIGITS:,} digits")
    return int(digits)


def _json_read_float(digits: str) -> float:
    """Return the float; one that overflows would come back as infinity, which JSON does not have."""
    if len(digits) > JSON_INT_DIGITS:
        raise _JsonFault(f"a number of more than {JSON_INT_DIGITS:,} digits")
    number = float(digits)
    if number - number != 0.0:
        raise _JsonFault("a number too large for a float")
    return number


def _json_refuse_constant(word: str) -> Any:
    """Refuse NaN, Infinity and -Infinity (parse_constant of the decoder)."""
    raise _JsonFault(f"{word}, which is no JSON number")


def _json_dumps(value: object, *, pretty: bool = False, ascii_only: bool = False) -> str:
    """Return the JSON text of a value, without a final newline. Pure.

    pretty: two blanks a level and one member a line, else no blank at all. ascii_only: escape everything beyond ASCII;
    otherwise only what must not reach a terminal raw (JSON_HIDDEN, lone surrogates). Floats are written as repr.
    Raises: _JsonFault with the path of what is NaN, infinite, no JSON type, part of itself, too deep, or under a key
    that is no text.

    >>> _json_dumps({"a": (1, 2.0, None)})
    '{"a":[1,2.0,null]}'
    """
    try:
        text = _json_write(value if _json_is_plain(value, JSON_DEPTH_LEVELS) else _json_copy(value), pretty, ascii_only)
    except (_JsonFault, RecursionError):
        _json_copy(value)  # names the place
        raise _JsonFault("more digits or levels than this program admits") from None
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    for character in JSON_HIDDEN:  # which can only stand inside strings
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates too


def _json_is_plain(value: Any, levels: int) -> bool:
    """Tell whether all types are exactly those of JSON and no more than so many levels deep; NaN is not looked for."""
    kind = type(value)
    if kind not in JSON_CONTAINER_TYPES:
        return kind in JSON_SCALAR_TYPES
    if levels == 0 or kind is dict and not JSON_TEXT_TYPE.issuperset(map(type, value)):
        return False
    members = value.values() if kind is dict else value
    return JSON_SCALAR_TYPES.issuperset(map(type, members)) or all(_json_is_plain(one, levels - 1) for one in members)


def _json_write(value: object, pretty: bool = False, ascii_only: bool = False) -> str:
    """Return the text of a plain value; raises _JsonFault under lowered limits of the interpreter."""
    try:
        from _json import encode_basestring, encode_basestring_ascii, make_encoder as make
    except ImportError:  # an interpreter without the C helpers
        from json import dumps

        separators = (",", ": " if pretty else ":")
        return dumps(value, ensure_ascii=ascii_only, indent=2 if pretty else None, separators=separators)
    escape = encode_basestring_ascii if ascii_only else encode_basestring

    def encode(part: Any, colon: str, comma: str) -> str:
        return "".join(make(None, repr, escape, None, colon, comma, False, False, False)(part, 0))

    try:
        return _json_lay_out(value, encode, "\n") if pretty else encode(value, ":", ",")
    except (ValueError, RecursionError):
        raise _JsonFault("more digits or levels than this program admits") from None


def _json_lay_out(value: Any, encode: Callable[[Any, str, str], str], newline: str) -> str:
    """Return the text of a plain value with a line for each member; newline: what begins a line at this level."""
    inner = newline + "  "
    members = value.values() if type(value) is dict else value
    if type(value) not in JSON_CONTAINER_TYPES or not value:
        return encode(value, "", "")
    if JSON_CONTAINER_TYPES.isdisjoint(map(type, members)):
        text = encode(value, ": ", "," + inner)
    else:
        texts = [_json_lay_out(item, encode, inner) for item in members]
        if type(value) is dict:
            texts = [encode(key, "", "") + ": " + text for key, text in zip(value, texts)]
        text = ("," + inner).join(texts).join("{}" if type(value) is dict else "[]")
    return text[0] + inner + text[1:-1] + newline + text[-1]


def _json_copy(value: object, canonical: bool = False) -> Any:
    """Return a deep copy of a value, of plain types. Pure. Raises: _JsonFault, with the path, for what is not JSON.

    canonical: keys in the order of their UTF-16 code units (RFC 8785 3.2.3), floats without a fraction as integers, so
    that equal values become equal copies.
    """
    try:
        return _json_plain(value, canonical, ())
    except RecursionError:
        raise _JsonFault("more levels than this program admits") from None


def _json_plain(value: Any, canonical: bool, above: tuple[int, ...]) -> Any:
    """Return the copy that _json_copy describes; above: the ids of the containers around the value."""
    if type(value) in JSON_FIXED_TYPES:
        return value
    if isinstance(value, int):
        if not -JSON_INT_LIMIT < value < JSON_INT_LIMIT:
            raise _JsonFault(f"an integer of more than {JSON_INT_DIGITS:,} digits")
        return int.__index__(value)
    if isinstance(value, float):
        real = float.__float__(value)
        if real - real != 0.0:
            raise _JsonFault("NaN" if real != real else "an infinite number")
        return int(real) if canonical and real == int(real) else real
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, (dict, list, tuple)):
        raise _JsonFault(f"a value of the Python type {type(value).__name__}")
    if id(value) in above:
        raise _JsonFault("a value that contains itself")
    if len(above) >= JSON_DEPTH_LEVELS:
        raise _JsonFault(f"more than {JSON_DEPTH_LEVELS} levels")
    above += (id(value),)
    key: Any = None
    try:
        if not isinstance(value, dict):
            items = []
            for key, item in enumerate(value):
                items.append(_json_plain(item, canonical, above))
            return items
        members = {}
        for key in sorted(value, key=_json_order) if canonical else value:
            if not isinstance(key, str):
                raise _JsonFault(f"a key of the Python type {type(key).__name__}")
            members[str.__str__(key)] = _json_plain(value[key], canonical, above)
        return members
    except _JsonFault as fault:
        fault.path = (key,) + fault.path if isinstance(key, (str, int)) else fault.path
        raise


def _json_order(key: object) -> bytes:
    """Return what a key is sorted by in the canonical form; a key that is no text is refused right after."""
    return key.encode("utf-16-be", "surrogatepass") if isinstance(key, str) else b""


def _json_canonical(value: object) -> bytes:
    """Return the bytes that digests and signatures are made over: equal exactly for values that are JSON-equal. Pure.

    RFC 8785 but for numbers: integers are exact, floats without a fraction are written as integers, others as repr.
    A lone surrogate, which UTF-8 does not have, becomes an escape. Raises: _JsonFault like _json_dumps.

    >>> _json_canonical({"b": 1.0, "a": [1e2, 0.5]})
    b'{"a":[100,0.5],"b":1}'
    """
    return _json_write(_json_copy(value, True)).encode("utf-8", "backslashreplace")


def _json_digest(value: object) -> str:
    """Return the SHA-256 of the canonical form, as 64 hexadecimal digits. Pure."""
    from hashlib import sha256

    return sha256(_json_canonical(value)).hexdigest()


def _json_key(value: Any) -> Any:
    """Return something hashable that is equal exactly for JSON-equal values (1 and 1.0, not 1 and true). Pure.

    Large integers and containers become text, whose hash is salted: the hash of a number can be chosen by an attacker,
    and a set of a hundred thousand collisions never ends. Raises: _JsonFault for what is not JSON.
    """
    if type(value) is not str:
        value = _json_copy(value, True)
    kind = type(value)
    if kind is bool:
        return (value,)
    if kind in JSON_CONTAINER_TYPES or kind in (int, float) and not -JSON_HASHED_BELOW < value < JSON_HASHED_BELOW:
        return (_json_write(value),)
    return value


def _json_pointer(path: Sequence[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of keys and indexes from the root. Pure.

    >>> _json_pointer(["a/b", 0, "~"])
    '/a~1b/0/~0'
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _json_kind(value: object) -> str:
    """Return the JSON word for the type of a value; a float is always a number, other Python types keep their name."""
    if value is None:
        return "null"
    return next((word for kind, word in JSON_KINDS if isinstance(value, kind)), type(value).__name__)


def _json_show(value: object, limit: int = JSON_SHOWN_CHARACTERS) -> str:
    """Return a value as JSON text on one line for a message: at most limit characters, none of them a control. Pure.

    Says in < > what has no JSON form, and reads no more of a large value than is shown.

    >>> _json_show("a" * 100, 12), _json_show([1, {"a": None}])
    ('"aaaaaaa"...', '[1, {"a": null}]')
    """
    text = ""
    for piece in _json_pieces(value, limit):
        text += piece
        if len(text) > limit:
            break
    else:
        return text
    if not isinstance(value, str):
        return text[: limit - 3] + "..."
    value = value[:limit]
    while value and len(text) > limit - 3:  # whole escapes only
        value = value[:-1]
        text = _json_dumps(value)
    return text + "..."


def _json_pieces(value: object, limit: int) -> Iterator[str]:
    """Yield the pieces of a value's text; strings are cut where limit characters are exceeded."""
    if isinstance(value, str):
        yield _json_dumps(value[:limit])
    elif isinstance(value, (dict, list, tuple)):
        first, last = "{}" if isinstance(value, dict) else "[]"
        for item in value:
            yield first
            first = ", "
            yield from _json_pieces(item, limit)
            if isinstance(value, dict):
                yield ": "
                yield from _json_pieces(value[item], limit)
        yield last if first == ", " else first + last
    else:
        try:
            yield _json_dumps(value)
        except _JsonFault as fault:
            yield f"<{fault.reason if isinstance(value, (int, float)) else type(value).__name__}>"
# endregion JSON


# region ENV -- Env: argv, streams, environ, cwd, clock, sleep, random; human() for text shown to people
# needs: LIMITS ERRORS
# The only reader of os.environ and sys.std*: everything that a call learns of its surroundings, and everything it says
# to them, passes one Env, so that a test (or another host) can be the surroundings. Making one opens nothing.
# Output is complete or an error: short writes and a full pipe are waited out, a full disk is OUTPUT_FAILED, a reader
# that went away is READER_GONE. What cannot be said on standard error is dropped: there is nowhere left to say so.
# A stream is a binary file object; text streams without bytes below (StringIO) are taken too; None is a closed one.
# POSIX calls (terminal, foreground, poll) are imported where they are used; elsewhere questions have no terminal.

ENV_PROCESS: Any = ("what this process has",)  # default of Env's keywords; None already means "closed"
ENV_YES = ("y", "yes")
ENV_WINDOWS_PIPE_CLOSED = 22  # EINVAL: how Windows reports that the reader went away
ENV_STANDARD = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
ENV_ESCAPED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, invisible marks, lone surrogates, line separators
ENV_JOINERS = "\u200c\u200d"  # invisible marks that Persian and emoji cannot be written without


def _env_no_reader() -> Error:
    """Return the Error for a reader of standard output that went away (`| head`): nothing is wrong. Exit 141. Pure."""
    return Error("READER_GONE", "the reader of standard output went away")


def _env_text(write: Callable[[str], object], encoding: str, stream: Callable[[], Any]) -> Any:
    """Return a text stream over a function that takes each text whole; what handlers see as ctx.stdout and ctx.stderr.

    stream: returns the file object behind it, or None; fileno() raises OSError where that has no descriptor.
    """

    def put(text: str) -> int:
        write(text)
        return len(text)

    make: Any = type(sys.implementation)  # types.SimpleNamespace, without its import
    return make(
        write=put, writelines=lambda lines: put("".join(lines)), flush=lambda: None,  # nothing is held back
        isatty=lambda: _env_is_terminal(stream()), fileno=lambda: int(stream().fileno()),
        encoding=encoding, closed=False,  # never: the stream belongs to the program, not to the handler
    )  # fmt: skip


def _env_human(text: str, *, lines: bool = False, limit: int = sys.maxsize) -> str:
    r"""Return text that is safe to show a person: nothing in it moves a cursor, hides or reorders. Pure, linear.

    Controls, bidirectional and other invisible marks, line separators and lone surrogates are shown escaped. lines:
    keep line feeds. limit: at most so many characters, cut with "...".

    >>> _env_human("a\x1b[31mb\n"), _env_human("a" * 9, limit=6)
    ('a\\x1b[31mb\\n', 'aaa...')
    """
    text = text[: limit + 1]
    if not (text.replace("\n", "") if lines else text).isprintable():
        from unicodedata import category

        kept = ENV_JOINERS + "\n" * lines
        text = "".join([
            ascii(character)[1:-1]
            if category(character) in ENV_ESCAPED_CATEGORIES and character not in kept
            else character
            for character in text
        ])
    return text if len(text) <= limit else text[: limit - 3] + "..."


class Env:
    """The surroundings of a program; every keyword defaults to those of this process.

    argv: the program's name and its words. stdin, stdout, stderr: binary file objects, None for a closed one. environ:
    names to texts. cwd: the current folder. clock: monotonic seconds. now: seconds since 1970. sleep: seconds to
    nothing. random: a number of bytes to that many. tty: opens the terminal as a text file for reading and writing, or
    returns None; None for "there is no terminal".
    """

    def __init__(
        self,
        *,
        argv: Sequence[str] | None = None,
        stdin: Any = ENV_PROCESS,
        stdout: Any = ENV_PROCESS,
        stderr: Any = ENV_PROCESS,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        clock: Callable[[], float] | None = None,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], object] | None = None,
        random: Callable[[int], bytes] | None = None,
        tty: Callable[[], Any] | None = ENV_PROCESS,
    ) -> None:
        import time

        self.argv = list(sys.argv if argv is None else argv)  #: the program's name, its words
        self.stdin = _env_stream(stdin, sys.stdin)  #: file object or None
        self.stdout = _env_stream(stdout, sys.stdout)  #: file object or None
        self.stderr = _env_stream(stderr, sys.stderr)  #: file object or None
        self._above = sys.stdout if stdout is ENV_PROCESS else None  #: text layer that print() fills
        self.stdout_encoding = _env_encoding(self._above)  #: name of a codec
        self.stderr_encoding = _env_encoding(sys.stderr if stderr is ENV_PROCESS else None)  #: name of a codec
        self.environ: Mapping[str, str] = os.environ if environ is None else environ  #: names to texts
        self.clock = clock or time.monotonic  #: seconds that never go back
        self.now = now or time.time  #: seconds since 1970
        self.sleep = sleep or time.sleep  #: waits so many seconds
        self.random = random or os.urandom  #: so many unpredictable bytes
        self.tty = self._open_terminal if tty is ENV_PROCESS else tty  #: opener of the terminal, or None
        self._out_text = self._err_text = None  #: text streams over the two, once they are asked for
        self._cwd = cwd  #: a folder, or None for that of the process
        self._owned = False  #: whether the descriptors of the process are ours
        self._given_back = False  #: whether descriptor 1 is the document again

    @property
    def cwd(self) -> str:
        """The current folder. Raises: BAD_REQUEST when it was deleted."""
        try:
            return os.getcwd() if self._cwd is None else self._cwd
        except OSError:
            raise Error("BAD_REQUEST", "the current folder no longer exists; change to one that does") from None

    @cwd.setter
    def cwd(self, folder: str) -> None:
        self._cwd = folder

    @property
    def out_ascii(self) -> bool:
        """Whether standard output needs everything beyond ASCII escaped: another encoding, or LC_ALL=C asked for it."""
        if not self.stdout_encoding.lower().startswith("utf"):
            return True
        asked = self.environ.get("PYTHONIOENCODING") or self.environ.get("PYTHONUTF8") == "1"
        # Python writes UTF-8 under LC_ALL=C (PEP 540); whoever sets it means ASCII.
        return self._above is not None and not asked and self.environ.get("LC_ALL") in ("C", "POSIX")

    def is_terminal(self, name: str) -> bool:
        """Tell whether "stdin", "stdout" or "stderr" is a terminal."""
        return _env_is_terminal(getattr(self, name))

    human = staticmethod(_env_human)  #: text that is safe to show a person

    def write_out(self, text: str) -> None:
        """Write all of the text to standard output; characters its encoding lacks are escaped.

        Raises: OUTPUT_FAILED, READER_GONE.
        """
        self.write_bytes_out(text.encode(self.stdout_encoding, "backslashreplace"))

    def write_bytes_out(self, data: bytes) -> None:
        """Write all of the bytes to standard output. Raises: OUTPUT_FAILED, READER_GONE."""
        if self.stdout is None:
            raise Error("OUTPUT_FAILED", "standard output is closed; run the command with one that is open")
        try:
            if self._above is not None:
                self._above.flush()  # what print() holds comes first
        except (AttributeError, OSError, ValueError):
            pass  # that text was not ours; our own write meets the same fault and reports it
        try:
            self._write_all(self.stdout, data, self.stdout_encoding)
        except (OSError, ValueError) as error:
            raise _env_output_fault(error) from error

    def write_err(self, text: str) -> None:
        """Write text to standard error as far as that is possible; failures are ignored."""
        try:
            data = text.encode(self.stderr_encoding, "backslashreplace")
            self._write_all(self.stderr, data, self.stderr_encoding)
        except (AttributeError, OSError, ValueError):
            pass  # missing, full or closed

    def stdout_text(self) -> Any:
        """Return standard output as a text stream for print(file=...); it raises what write_out raises."""
        if self._out_text is None:
            self._out_text = _env_text(self.write_out, self.stdout_encoding, lambda: self.stdout)
        return self._out_text

    def stderr_text(self) -> Any:
        """Return standard error as a text stream for print(file=...)."""
        if self._err_text is None:
            self._err_text = _env_text(self.write_err, self.stderr_encoding, lambda: self.stderr)
        return self._err_text

    def read_stdin(self, first_byte_seconds: float) -> bytes | None:
        """Return all of standard input, or None for a terminal, a closed stream, no byte in time, or no byte at all.

        first_byte_seconds: how long to wait for the first byte; after it, the stream is read to its end however long
        that takes. Raises: BAD_REQUEST when reading fails or there is more than ENV_STDIN_BYTES.
        """
        if self.stdin is None or self.is_terminal("stdin"):
            return None
        try:
            data = self._read_all(first_byte_seconds)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) is None:
                return None  # a closed stream, or a stand-in that refuses to be read (pytest's); nothing that failed
            message = f"cannot read standard input ({_env_reason(error)}); give the value as an argument"
            raise Error("BAD_REQUEST", message) from error
        if len(data) > ENV_STDIN_BYTES:
            raise Error("BAD_REQUEST", f"standard input has more than {ENV_STDIN_BYTES:,} bytes; give less")
        return data or None

    def _patiently(self, step: Callable[[], Any]) -> Any:
        """Return what a step returns; one that a non-blocking stream refuses is repeated."""
        while True:
            try:
                return step()
            except BlockingIOError:
                self.sleep(ENV_RETRY_SECONDS)

    def _write_all(self, stream: Any, data: bytes, encoding: str) -> None:
        """Write all bytes past every buffer, waiting while the other side is full. Raises OSError, ValueError."""
        descriptor = _env_descriptor(stream)
        if descriptor is None:
            stream.write(data.decode(encoding) if hasattr(stream, "encoding") else data)
        self._patiently(stream.flush)
        rest = memoryview(data)
        while descriptor is not None and rest:
            rest = rest[self._patiently(lambda: os.write(descriptor, rest)) :]

    def _read_all(self, first_byte_seconds: float) -> bytes:
        """Return all of standard input, not much more than the limit; nothing if no byte comes in time."""
        descriptor = _env_descriptor(self.stdin)
        if descriptor is None:
            data = self.stdin.read(ENV_STDIN_BYTES + 1)
            return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data or b"")

        def read() -> Any:
            return self._patiently(lambda: os.read(descriptor, ENV_CHUNK_BYTES))

        more = b""
        if os.name == "nt":
            more = _env_read_in_thread(read, first_byte_seconds)
        else:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(first_byte_seconds * 1000):
                more = read()
        found = bytearray()
        while more and len(found) <= ENV_STDIN_BYTES:
            found += more
            more = read()
        return bytes(found)

    def ask(self, lines: Sequence[str], question: str) -> bool | None:
        """Show the lines, ask the question on the terminal and return whether the answer is y or yes.

        Returns None where nobody can be asked: no terminal, or a job in the background. What was typed before the
        question stood there is dropped. The default is no.
        """
        shown = "".join(_env_human(line) + "\n" for line in lines) + _env_human(question) + " [y/N] "
        answer = self._answer(shown, False)
        # Without its end it is the end of the input, or thousands of characters.
        return None if answer is None else answer.endswith("\n") and answer.strip().lower() in ENV_YES

    def ask_secret(self, prompt: str) -> str | None:
        """Ask for a secret on the terminal without showing what is typed; None where nobody can be asked.

        prompt: shown as it is, so it ends with its own blank. What was typed before is dropped.
        """
        answer = self._answer(_env_human(prompt), True)
        return answer.rstrip("\r\n") if answer else None

    def _answer(self, shown: str, hidden: bool) -> str | None:
        """Return the line typed after this was shown, empty at the end of the input; None where nobody can be asked."""
        try:
            terminal = self.tty() if self.tty is not None else None
            if terminal is None:
                return None
            try:
                return _env_converse(terminal, shown, hidden)
            finally:
                terminal.close()
        except Exception:  # nobody can be asked at a terminal that fails, whatever it raises (OSError, termios.error)
            return None

    def _open_terminal(self) -> Any:
        """Return the terminal as a text file; None in the background. Raises OSError where there is none."""
        import io

        if os.name != "posix":
            return None
        flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
        try:
            number = os.open("/dev/tty", flags)
        except OSError:  # a terminal that does not control us can still answer: there is no background to be in
            number = os.open(os.ttyname(self.stdin.fileno()), flags)
        else:
            if os.tcgetpgrp(number) != os.getpgrp():
                os.close(number)
                return None
        return io.TextIOWrapper(io.FileIO(number, "r+"), errors="backslashreplace")

    @classmethod
    def own_descriptors(cls) -> Env:
        """Take the descriptors of this process and return the Env that writes to the document alone.

        Closed ones of 0, 1, 2 become /dev/null. Descriptor 1 is kept as a private close-on-exec one, then points at
        standard error, so that neither print() nor a child process can touch the document. Changes the whole process:
        for a program's main alone. Raises: OUTPUT_FAILED when there is no descriptor left.
        """
        try:
            free = [_env_open_standard(*each) for each in ENV_STANDARD]
            private = os.dup(1) if free[1] else -1
            if free[1] and free[2]:
                os.dup2(2, 1)
            elif free[1]:
                _env_send_nowhere(1)
        except OSError as error:
            message = f"cannot set up standard output ({_env_reason(error)}); close other files"
            raise Error("OUTPUT_FAILED", message) from error
        env = cls()
        env._owned = True
        env.stdout = open(private, "wb", buffering=0, closefd=False) if free[1] else None
        _env_line_buffer(True)  # it is standard error now: no line may wait for the end
        return env

    def give_back_stdout(self) -> None:
        """Point descriptor 1 at the document again: for a native command that prints for itself."""
        if self._owned and not self._given_back and self.stdout is not None:
            self._given_back = True
            os.dup2(self.stdout.fileno(), 1)
            if hasattr(os, "set_blocking"):
                os.set_blocking(1, True)  # print() loses what a full pipe does not take at once
            _env_line_buffer(self.is_terminal("stdout"))

    def take_stdin(self) -> Any:
        """Return standard input as a binary stream, None where it is closed, and leave nothing of it to anyone else.

        Where the descriptors are owned, descriptor 0 becomes /dev/null: a child process, or a handler that reads
        input, must not eat the lines that were meant for a loop around it. Changes the whole process.
        """
        if self._owned and self.stdin is not None and _env_descriptor(self.stdin) == 0:
            self.stdin = open(os.dup(0), "rb", buffering=0)
            _env_send_nowhere(0)
        return self.stdin

    def finish(self) -> None:
        """Deliver the last output, so that the interpreter finds nothing to fail at; after own_descriptors() alone.

        Flushes what print() still holds and closes the document, which is where some file systems report a full disk.
        Raises: OUTPUT_FAILED, READER_GONE.
        """
        if not self._owned:
            return
        errors: list[OSError] = []
        for number, name in ((1, "stdout"), (2, "stderr")):
            try:
                getattr(sys, name).flush()
            except OSError as error:
                _env_send_nowhere(number)
                errors += [error] if number == 1 and self._given_back else []
            except (AttributeError, ValueError):
                setattr(sys, name, None)  # replaced or closed by the program; the interpreter would fail at it too
        try:
            if self.stdout is not None:
                os.close(self.stdout.fileno())
        except OSError as error:
            errors.append(error)
        self.stdout = None
        if errors:
            raise _env_output_fault(errors[0])


def _env_output_fault(error: Exception) -> Error:
    """Return the Error for a failed write to standard output. Pure."""
    number = getattr(error, "errno", None)
    if isinstance(error, ConnectionError) or (os.name == "nt" and number == ENV_WINDOWS_PIPE_CLOSED):
        return _env_no_reader()
    message = f"cannot write standard output ({_env_reason(error)}); make room or send it elsewhere"
    return Error("OUTPUT_FAILED", message)


def _env_reason(error: Exception) -> str:
    """Return what the system says of a failure; an error of Python's own means a closed stream. Pure."""
    return getattr(error, "strerror", None) or "it is closed"


def _env_stream(given: Any, standard: Any) -> Any:
    """Return the file object that was given, else the binary one below a standard stream (itself if none is)."""
    return getattr(standard, "buffer", standard) if given is ENV_PROCESS else given


def _env_encoding(stream: Any) -> str:
    """Return the name of a text stream's codec; UTF-8 where it has none."""
    return getattr(stream, "encoding", None) or "utf-8"


def _env_is_terminal(stream: Any) -> bool:
    """Tell whether a stream is a terminal; closed and missing ones are none."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def _env_descriptor(stream: Any) -> int | None:
    """Return the descriptor of a plain file object; None for all others (BytesIO, gzip, a Windows console)."""
    import io

    raw = getattr(stream, "buffer", stream)  # below a text stream
    raw = getattr(raw, "raw", raw)  # below a buffer
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _env_read_in_thread(read: Callable[[], bytes], seconds: float) -> bytes:
    """Return the first bytes where poll() knows no pipes (Windows); nothing if none come within so many seconds."""
    from threading import Thread

    found: list[bytes] = []
    thread = Thread(target=lambda: found.append(read()), daemon=True)  # one that never reads ends with the process
    thread.start()
    thread.join(seconds)
    return found[0] if found else b""


def _env_converse(terminal: Any, shown: str, hidden: bool) -> str:
    """Show text on a terminal and return the line that is typed then; what was typed before was no answer to it.

    hidden: echo is off, and on again whatever happens (Ctrl-C too). Raises OSError, termios.error.
    """

    def ask() -> str:
        terminal.write(shown)
        terminal.flush()
        return str(terminal.readline(ENV_ANSWER_CHARACTERS))

    descriptor = _env_descriptor(terminal)
    if descriptor is None:  # a stand-in of a test
        return ask()
    import termios

    before = termios.tcgetattr(descriptor)
    silent = list(before)
    silent[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent if hidden else before)
        return ask()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        terminal.write("\n" if hidden else "")


def _env_open_standard(number: int, name: str, mode: str) -> bool:
    """Make sure that a standard descriptor is open; return False if it is not the standard stream.

    Where the stream was closed when the program began, sys has none; then the program itself may have opened a file
    that got this number, and that file must not be written to or replaced.
    """
    try:
        os.fstat(number)
    except OSError:
        _env_send_nowhere(number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))
    return getattr(sys, name) is not None


def _env_send_nowhere(number: int) -> None:
    """Point a standard descriptor at /dev/null; children inherit it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    else:
        os.set_inheritable(number, True)


def _env_line_buffer(on: bool) -> None:
    """Turn line buffering of sys.stdout on or off, where it has any: a replaced one may be anything."""
    try:
        sys.stdout.reconfigure(line_buffering=on)  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        pass
# endregion ENV


# region FILES -- atomic and exclusive writes, private files, bounded reads, the lock, the journal
# needs: LIMITS ERRORS JSON
# What the module writes is never seen half done: the bytes go to a new file beside the target (its name begins
# with ".new-"), which then takes the target's name in one step. Killed at any moment, the target is the old file or
# the new one; at worst a ".new-" file stays behind. A link at the target's name is replaced, never written through.
#
# A private file holds a secret: a regular file of ours, mode 0600, one name, in a folder that nobody else can
# write. It is opened without following a link and judged through its descriptor, so what was judged is what is read.
# Systems without POSIX owners and modes (Windows) keep such files by their folder's access list; there only "a
# regular file of one name" is checked.
#
# Every failure is an Error: NOT_FOUND, CONFLICT, FORBIDDEN (not private), OUTPUT_FAILED, BAD_REQUEST, LOCKED,
# JOURNAL_DAMAGED.

FILES_MODE = 0o600  # a file that nobody else may read
FILES_FOLDER_MODE = 0o700  # a folder that nobody else may enter
FILES_STAGE_PREFIX = ".new-"  # begins the name of a file that is not finished
FILES_LOCK_OFFSET = 2**30  # of the one byte that Windows locks: whoever asks may still read the text before it
FILES_LOCK_ENDING = ".lock"  # of the name of a lock, which for the rest is that of the file it protects
FILES_LOCK_START = b"process "  # begins the text of a lock; a number follows
FILES_START = b'{"seq":0'  # begins a journal
FILES_SEAL = b',"sha256":"'  # stands before the digest of a record
FILES_SEAL_SIZE = len(FILES_SEAL) + 64 + 2  # with the digest and the end of the object


def _files_flags(*names: str) -> int:
    """Return these flags of os.open, as far as the system has them, and what every file of ours is opened with.

    That is: never inherited by a child, no translated line ends, never a controlling terminal. Pure.
    """
    flags = 0
    for name in (*names, "O_CLOEXEC", "O_BINARY", "O_NOCTTY"):
        flags |= getattr(os, name, 0)
    return flags


def _files_failure(code: str, doing: str, path: str, error: Exception, remedy: str) -> Error:
    """Return the refusal for what the system (or the path's own text) made impossible. Pure."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "no file can have this name"
    return Error(code, f"cannot {doing} {_json_show(path)} ({reason}); {remedy}")


def _files_shell(path: str) -> str:
    """Return a path as one word of a POSIX shell line, safe to show: what cannot be printed is shown escaped. Pure."""
    if not path.isprintable():
        return _json_show(path, FILES_SHOWN_CHARACTERS)
    import shlex

    return shlex.quote("./" + path if path.startswith("-") else path)


def _files_remove(path: str) -> None:
    """Remove a file that may be gone already. Writes file."""
    try:
        os.unlink(path)
    except OSError:
        pass  # the failure that brought us here is the one to report


def _files_stage(folder: str, data: bytes, mode: int, durable: bool) -> str:
    """Write a new file completely, with exactly this mode whatever the umask, and return its path. Writes file.

    On failure it is gone again. Its name is free of any other process's: what exists is never opened.
    """
    for number in range(FILES_STAGE_NAMES):
        stage = os.path.join(folder, f"{FILES_STAGE_PREFIX}{os.getpid()}-{number}")
        try:
            file = open(stage, "xb", opener=lambda path, flags: os.open(path, flags, FILES_MODE))
            break
        except FileExistsError:
            continue  # of another thread, or left by a process that was killed
    else:
        raise OSError(0, f"{FILES_STAGE_NAMES} unfinished files {FILES_STAGE_PREFIX}* in the folder")
    try:
        with file:
            file.write(data)
            file.flush()
            # After the bytes: a write takes set-user-ID away, and nobody may read a half-written file.
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        _files_remove(stage)
        raise
    return stage


def _files_is_special(mode: int) -> bool:
    """Tell whether a file mode is that of a device, a pipe or a socket. Pure."""
    import stat

    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _files_check_target(path: str) -> None:
    """Raise OSError where a rename would put a file in the place of a device, a pipe or a socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # nothing there, or a link to nothing
    if _files_is_special(mode):
        raise OSError(0, "a device, a pipe or a socket stands there")


def _files_publish(stage: str, path: str, exclusive: bool) -> None:
    """Give the staged file its name in one step; FileExistsError if exclusive and the name is taken. Writes file."""
    if not exclusive:
        os.replace(stage, path)
        return
    try:
        os.link(stage, path)
    except FileExistsError:
        raise
    except (OSError, AttributeError):
        # No hard links on this file system: take the name with an empty file, then replace that.
        open(path, "xb").close()
        try:
            os.replace(stage, path)
        except BaseException:
            _files_remove(path)
            raise
    else:
        _files_remove(stage)  # killed before this, the file has two names: see _files_remove_twins


def _files_sync_folder(folder: str) -> None:
    """Make the names in a folder durable, where the system can. Writes file."""
    import errno

    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, _files_flags("O_DIRECTORY"))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # a folder we may write but not read, or no such thing as syncing a folder here
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def _files_write(
    path: str, data: bytes, *, mode: int = FILES_MODE, durable: bool = False, exclusive: bool = False
) -> None:
    """Write a whole file atomically: whoever reads, and whenever we are killed, finds the old content or the new.

    mode: the exact permission bits, whatever the umask and whatever the old file had. durable: the content and the
    name have reached the disk when this returns. exclusive: the name must be new (where the file system has no hard
    links, a reader may find the new name empty for a moment).
    A link at the path is replaced by the file; the file it points to is not touched. A device, pipe or socket is
    refused: root must not lose /dev/null to a file. Writes file.

    Raises: CONFLICT when exclusive and something stands at the path, else OUTPUT_FAILED.
    """
    folder = os.path.dirname(path)
    try:
        _files_check_target(path)
        stage = _files_stage(folder, data, mode, durable)
        try:
            _files_publish(stage, path, exclusive)
        except BaseException:
            _files_remove(stage)
            raise
        if durable:
            _files_sync_folder(folder or os.curdir)
    except FileExistsError as error:
        raise Error("CONFLICT", f"{_json_show(path)} exists already; remove it or choose another name") from error
    except (OSError, ValueError) as error:
        raise _files_failure("OUTPUT_FAILED", "write", path, error, "choose a place that can be written") from error


def _files_read(path: str, max_bytes: int, *, private: bool = False) -> bytes:
    """Return the bytes of a file that the user named; links are followed, pipes and devices read to their end.

    private: it must be a private file, judged through its descriptor; what is not is refused with the command that
    makes it so.

    Raises: NOT_FOUND, FORBIDDEN (not private), BAD_REQUEST (cannot be read, or has more than max_bytes). Reads file.
    """
    try:
        with open(path, "rb", opener=_files_open_private if private else None) as file:
            if private:
                _files_judge(os.fstat(file.fileno()), path)
            data = file.read(max_bytes + 1)  # one byte more tells "exactly full" from "too large"
    except FileNotFoundError as error:
        raise _files_failure("NOT_FOUND", "read", path, error, "give the path of a file that exists") from error
    except (OSError, ValueError) as error:
        raise _files_failure("BAD_REQUEST", "read", path, error, "give a file that this program may read") from error
    if len(data) > max_bytes:
        raise Error("BAD_REQUEST", f"{_json_show(path)} has more than {max_bytes:,} bytes; give a smaller file")
    return data


def _files_open_private(path: str, flags: int) -> int:
    """Return a descriptor for reading what may be a private file, as an opener of open().

    The look at the name serves the words of the refusal; what is opened is judged by its descriptor.
    """
    # O_NONBLOCK: a pipe that stands there must not hold us up before it is judged.
    flags |= _files_flags("O_NOFOLLOW", "O_NONBLOCK")
    if not hasattr(os, "geteuid"):
        return os.open(path, flags)
    parent, name = os.path.split(path)
    folder = os.open(parent or os.curdir, _files_flags("O_PATH", "O_DIRECTORY"))
    try:
        _files_judge_folder(os.fstat(folder), parent or os.curdir)
        _files_judge(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _files_judge(state: os.stat_result, path: str) -> None:
    """Refuse a file that is not private, with the command that mends it. Raises: FORBIDDEN."""
    import stat

    mode = stat.S_IMODE(state.st_mode)
    names = state.st_nlink - (_files_remove_twins(state, path) if state.st_nlink > 1 else 0)
    user = os.geteuid() if hasattr(os, "geteuid") else None
    copy = "run (umask 077; cp {old} {new} && mv -f {new} {old})"  # puts a private file in the place of a link
    is_link = stat.S_ISLNK(state.st_mode)
    for wrong, why in (
        (is_link and not os.path.isfile(path), "is a link to no regular file; put a regular file there"),
        (is_link, "is a link; " + copy),
        (not stat.S_ISREG(state.st_mode), "is not a regular file; put a regular file there"),
        (user not in (None, state.st_uid), "belongs to another user; look at it, then run sudo chown {user} {old}"),
        (user is not None and mode & 0o077, "is open to other users (mode {mode:04o}); run chmod 600 {old}"),
        (names != 1, "has {names} names (hard links); " + copy),
    ):
        if wrong:
            old, new = _files_shell(path), _files_shell(path + ".new")
            why = why.format(old=old, new=new, user=user, mode=mode, names=names)
            raise Error("FORBIDDEN", f"{_json_show(path)} {why}")


def _files_remove_twins(state: os.stat_result, path: str) -> int:
    """Remove what an exclusive write that was killed left beside its file: the same file under a name for staging.

    Returns how many names are gone. Writes file.
    """
    folder, gone = os.path.dirname(path), 0
    try:
        for name in os.listdir(folder or os.curdir):
            twin = os.path.join(folder, name)
            if name.startswith(FILES_STAGE_PREFIX) and os.path.samestat(os.lstat(twin), state):
                os.unlink(twin)
                gone += 1
    except OSError:
        pass  # the file keeps its second name, which is refused
    return gone


def _files_judge_folder(state: os.stat_result, path: str) -> None:
    """Refuse a folder that may not hold private files, with the command that mends it. Raises: FORBIDDEN."""
    if not hasattr(os, "geteuid"):
        return
    fault = ""
    if state.st_uid not in (os.geteuid(), 0):
        fault = "belongs to another user; use a folder of your own"
    elif state.st_mode & 0o022:
        shared = state.st_mode & 0o1000  # the sticky bit: a folder in which everyone may add files, such as /tmp
        remedy = "use a folder of your own for private files" if shared else f"run chmod go-w {_files_shell(path)}"
        fault = f"can be written by other users; {remedy}"
    if fault:
        raise Error("FORBIDDEN", f"folder {_json_show(path)} {fault}")


def _files_private_directory(path: str) -> None:
    """Make a folder for private files (0700, missing parents too) or accept one that nobody else can write.

    Raises: FORBIDDEN with the command that mends it, OUTPUT_FAILED when it cannot be made. Writes file.
    """
    missing, folder = [], path
    try:
        while folder and not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder.rstrip(os.sep))
        for folder in reversed(missing):
            try:
                os.mkdir(folder, FILES_FOLDER_MODE)
                os.chmod(folder, FILES_FOLDER_MODE)  # the umask may have taken our own bits away
            except FileExistsError:
                continue  # another process made it first; the last one is judged below
        state = os.stat(os.path.join(path, ""))  # a file is no folder
    except (OSError, ValueError) as error:
        raise _files_failure("OUTPUT_FAILED", "make the folder", path, error, "choose another place") from error
    _files_judge_folder(state, path)


class _FilesOpen:
    """An open file that no forked child keeps, and that is not mistaken for another one with its number.

    A lock is free when the last process that has the open file is gone, and a forked child has every open file, so the
    child closes these before it does anything else. Whoever closes descriptors that are not his gives the number of
    ours to the next file that he opens, so each use asks first.
    """

    __slots__ = ("_number", "place")
    _all: set[_FilesOpen] = set()  #: what is open now: the children of a process are a matter of the process
    _is_watching = False  #: whether children are told to close them

    def __init__(self, descriptor: int = -1) -> None:
        self._number = descriptor  #: the descriptor, or -1
        self.place = (0, 0)  #: device and inode of its file
        if descriptor >= 0:
            self._all.add(self)
            state = os.fstat(descriptor)
            self.place = (state.st_dev, state.st_ino)
            if not self._is_watching and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._close_all)
                _FilesOpen._is_watching = True

    @staticmethod
    def _close_all() -> None:
        for opened in list(_FilesOpen._all):
            opened.close()

    def number(self) -> int:
        """Return the descriptor. Raises: OSError where it is closed, or that of another file by now."""
        state = os.fstat(self._number)
        if (state.st_dev, state.st_ino) != self.place:
            raise OSError(0, "the program has closed this file")
        return self._number

    def close(self, unlock: bool = False) -> None:
        """Close the file, if it is ours and open; unlock: and free its lock, whoever else has the file open."""
        try:
            descriptor = self.number()
            try:
                if unlock:
                    _files_flock(descriptor, "LOCK_UN")
            finally:
                os.close(descriptor)
        except OSError:
            pass  # nothing to close; or a network file system tells of what was not synced, which nobody relies on
        self._number = -1
        self._all.discard(self)


def _files_open_own(path: str, check: Callable[[bytes, str], None], *names: str) -> _FilesOpen:
    """Return a private file, opened with these flags, whatever its folder is.

    check refuses a file that is not of the kind, told by its first bytes: nobody is to change the mode of another one.

    Raises: FORBIDDEN, what check raises, OSError, ValueError.
    """
    try:
        _files_judge(os.lstat(path), path)  # for the words of the refusal, as in _files_open_private
    except FileNotFoundError:
        pass  # to be made, or missed by open
    except Error:
        check(_files_peek(path), path)
        raise
    descriptor = os.open(path, _files_flags("O_NOFOLLOW", "O_NONBLOCK", *names), FILES_MODE)
    opened = _FilesOpen(descriptor)
    try:
        _files_judge(os.fstat(descriptor), path)
    except BaseException:
        opened.close()
        raise
    return opened


def _files_read_start(descriptor: int) -> bytes:
    """Return the first bytes of an open file: one more than the text of a lock has at most. Reads file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, FILES_SHOWN_CHARACTERS + 1)


def _files_peek(path: str) -> bytes:
    """Return the first bytes of a file if it is a regular one and can be read. Reads file."""
    import stat

    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        descriptor = os.open(path, os.O_RDONLY | _files_flags("O_NOFOLLOW", "O_NONBLOCK"))
        try:
            return _files_read_start(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _files_sync(descriptor: int) -> None:
    """Make durable what was written to a file: its bytes and its length. Writes file."""
    if sys.platform == "darwin":  # where fsync stops at the cache of the drive
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError:
            pass  # no such thing on this file system
    getattr(os, "fdatasync", os.fsync)(descriptor)


# The lock belongs to the open file, so the system frees it when its holder dies, however that happens. The file is
# never deleted: of two processes one could hold the deleted file and the other the new one. Its text, "process 4711
# on HOST", serves messages alone; the time of the last change tells since when.


def _files_flock(descriptor: int, kind: str) -> bool:
    """Take (LOCK_EX, LOCK_SH) or free (LOCK_UN) the lock of an open file; False when another open file has it."""
    import errno

    try:
        try:
            import fcntl

            fcntl.flock(descriptor, getattr(fcntl, kind) | fcntl.LOCK_NB)
        except ImportError:
            import msvcrt

            windows: Any = msvcrt
            os.lseek(descriptor, FILES_LOCK_OFFSET, os.SEEK_SET)
            windows.locking(descriptor, windows.LK_UNLCK if kind == "LOCK_UN" else windows.LK_NBLCK, 1)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def _files_lock_holder(path: str) -> str | None:
    """Return who holds the lock at a path, in words for a message; None when nobody does. Reads file.

    To find out, the lock is taken for a moment, shared: _FilesLock looks twice.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _files_flags("O_NOFOLLOW", "O_NONBLOCK"))
    except (OSError, ValueError):
        return None  # what nobody could open, or nobody made, nobody holds
    try:
        if _files_flock(descriptor, "LOCK_SH"):
            return None
        from time import gmtime, strftime

        os.lseek(descriptor, 0, os.SEEK_SET)
        text = str(os.read(descriptor, FILES_SHOWN_CHARACTERS), "utf-8")
        if text.startswith("process ") and text.isprintable():
            return text + strftime(" since %Y-%m-%dT%H:%M:%SZ", gmtime(os.fstat(descriptor).st_mtime))
    except (OSError, OverflowError, ValueError):
        pass
    finally:
        os.close(descriptor)
    return "another process"


def _files_check_lock(text: bytes, path: str) -> None:
    """Refuse a file that is no lock, told by its first bytes: its text would be lost. Raises: CONFLICT."""
    is_ours = text.startswith(FILES_LOCK_START) and text[len(FILES_LOCK_START) :][:1].isdigit()
    is_ours = is_ours or not text.strip(b"\0")  # NULs: what a crash leaves
    if not is_ours or len(text) > FILES_SHOWN_CHARACTERS:
        raise Error("CONFLICT", f"{_json_show(path)} is no lock, for it has another content; move it away, or choose "
                    "another name for the file to be locked")


class _FilesLock:
    """A lock that one open file in the whole system holds, to be used with `with` or by take and free.

    path: a private file beside what it protects, made when missing, in a folder that is there. If its name is that of
    another file with ".lock" at its end, nothing but a regular file may stand there.
    """

    def __init__(self, path: str) -> None:
        self.path = path  #: of the lock file
        self._held = _FilesOpen()  #: the open file that holds the lock

    def take(
        self,
        *,
        wait_seconds: float = 0.0,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Take the lock, or wait for it as long as told (with a clock in seconds and a way to sleep).

        Raises: LOCKED naming the holder, FORBIDDEN (the file is not private, or what it protects is no regular file),
        CONFLICT (it is no lock), OUTPUT_FAILED (it cannot be made).
        """
        start = clock() if clock is not None else 0.0
        try:
            self._check_protected()
            while not (self._try() or self._try()):  # twice: the file was replaced meanwhile, or somebody only looked
                if sleep is None or clock is None or not clock() - start < wait_seconds:
                    holder = _files_lock_holder(self.path) or "another process"
                    raise Error("LOCKED", f"{_json_show(self.path)} is locked by {holder}; wait until it has ended")
                sleep(FILES_LOCK_PAUSE_SECONDS)
        except (FileNotFoundError, NotADirectoryError) as error:
            folder = _json_show(os.path.dirname(self.path) or os.curdir)
            raise Error("OUTPUT_FAILED", f"cannot lock {_json_show(self.path)}, for there is no folder {folder}; make "
                        "it, or choose another place") from error
        except (OSError, ValueError) as error:
            remedy = "choose a place that can be written"
            raise _files_failure("OUTPUT_FAILED", "lock", self.path, error, remedy) from error

    def _check_protected(self) -> None:
        """Refuse to make a lock beside what is no regular file. Raises: FORBIDDEN, ValueError."""
        name = self.path[: -len(FILES_LOCK_ENDING)]
        if not self.path.endswith(FILES_LOCK_ENDING) or not os.path.basename(name):
            return  # the lock of a folder
        if os.path.lexists(name) and not os.path.isfile(name):
            raise Error("FORBIDDEN", f"{_json_show(name)} is not a regular file; use the path of one, or of nothing")

    def _try(self) -> bool:
        """Take the lock if it is free and its file still stands at the path."""
        opened = _files_open_own(self.path, _files_check_lock, "O_RDWR", "O_CREAT")
        try:
            descriptor = opened.number()
            if not _files_flock(descriptor, "LOCK_EX"):
                return False
            if not os.path.samestat(os.fstat(descriptor), os.lstat(self.path)):
                return False
            _files_check_lock(_files_read_start(descriptor), self.path)
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, FILES_MODE)  # the umask may have taken our own bits away
            self._name_holder(descriptor)
            self._held, opened = opened, _FilesOpen()
            return True
        except FileNotFoundError:
            return False  # deleted meanwhile
        finally:
            opened.close()

    @staticmethod
    def _name_holder(descriptor: int) -> None:
        """Write who we are into the lock file. Writes file."""
        host = f" on {os.uname().nodename}" if hasattr(os, "uname") else ""
        text = FILES_LOCK_START + f"{os.getpid()}{host}".encode("utf-8", "replace")
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, text[:FILES_SHOWN_CHARACTERS])
        except OSError:
            pass  # a full disk: the lock holds without words

    def free(self) -> None:
        """Free the lock; a forked child has none, for it belongs to the process that took it."""
        try:
            descriptor = self._held.number()
            _files_check_lock(_files_read_start(descriptor), self.path)
            os.ftruncate(descriptor, 0)
        except (Error, OSError):
            pass  # not held; or somebody has written into it
        self._held.close(unlock=True)

    def __enter__(self) -> _FilesLock:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


# A journal is a private file of records, one a line, that only grows:
#
#     {"seq":0, ...,"sha256":"<64 hexadecimal digits>"}
#
# sha256 is over the digits of the record before (none for record 0) and this line's own bytes before `,"sha256"`. So
# nothing can be changed, dropped, doubled or moved without being noticed, up to the last record.
#
# What a crash leaves is mended by the first write. The end is torn when the last line has no line end and no valid
# digest, or when whole sectors of it are NULs: some file systems store the length of a file before its bytes. A last
# record without line end is whole. Anything else is damage, which no crash makes: it is refused, and nothing changed.


def _files_is_lost(data: bytes, offset: int) -> bool:
    """Tell whether data at this offset of a file holds NULs, and these fill sectors as a crash leaves them. Pure."""
    first = -offset % FILES_SECTOR_BYTES
    sectors = [data[:first]]
    for begin in range(first, len(data), FILES_SECTOR_BYTES):
        sectors.append(data[begin : begin + FILES_SECTOR_BYTES])
    holes = [sector for sector in sectors if b"\0" in sector]
    return bool(holes) and not any(sector.strip(b"\0") for sector in holes)


def _files_find_record(line: bytes, before: bytes) -> tuple[int, bytes]:
    """Return the size (without line end) and digest of the whole record that a line begins with, or 0. Pure.

    before: the digest of the record before. Reads the line once, however often it looks like the end of a record.
    """
    from hashlib import sha256

    state, done, at = sha256(before), 0, line.find(FILES_SEAL)
    while at >= 0:
        state.update(line[done:at])
        digest, done = state.hexdigest().encode(), at
        if line.startswith(FILES_SEAL + digest + b'"}', at):
            return at + FILES_SEAL_SIZE, digest
        at = line.find(FILES_SEAL, at + 1)
    return 0, b""


def _files_check_journal(start: bytes, path: str) -> None:
    """Refuse a file that is no journal, told by its first bytes, whatever is left of them. Raises: JOURNAL_DAMAGED."""
    if start.strip(b"\0") and start[: len(FILES_START)] != FILES_START[: len(start)]:
        raise Error("JOURNAL_DAMAGED", f"{_json_show(path)} is no journal, for it does not begin with "
                    f"{FILES_START.decode()}; choose the path of a journal, or of no file")


def _files_make_record(
    record: Mapping[str, Any], place: tuple[int, int, bytes], text: str = ""
) -> tuple[bytes, tuple[int, int, bytes]]:
    """Return the line of a record and the place after it; place: offset, number and digest before. Pure.

    Raises: _JsonFault.
    """
    from hashlib import sha256

    offset, number, before = place
    body = (_json_dumps({"seq": number, **record})[:-1] + text).encode()
    digest = sha256(before + body).hexdigest().encode()
    line = body + FILES_SEAL + digest + b'"}\n'
    return line, (offset + len(line), number + 1, digest)


class _FilesJournal:
    """Records that survive a crash; the lines above say how they are written and verified.

    path: of the file, where it stays as long as it is open: the run that writes it has it locked, so that no other run
    gets in by another name of it. Records are objects without "seq" and "sha256".
    """

    def __init__(self, path: str) -> None:
        from json.decoder import JSONDecoder

        self.path = path  #: of the journal
        self.torn = 0  #: bytes of an unfinished record at the end, known after all records were read
        self._file = _FilesOpen()  #: the open file
        self._decode = JSONDecoder().decode  #: not the strict reader: the digest vouches for what was written
        #: What is to be written, and the place (offset, number, digest) after each line. The first one is in the file
        #: already, but for a line end that it may lack; none: the end is not known yet. One step adds a line or takes
        #: all of them away, so that an interrupt leaves no half.
        self._queue: list[tuple[bytes, tuple[int, int, bytes]]] = []
        self._is_dirty = False  #: whether something behind the last record must be cut off first

    def create(self, header: Mapping[str, Any]) -> None:
        """Make the journal with record 0, durable when this returns, and open it for writing. Writes file.

        Raises: CONFLICT when something stands at the path, OUTPUT_FAILED, _JsonFault, and what open refuses with.
        """
        self.close()
        _files_write(self.path, _files_make_record(header, (0, 0, b""))[0], durable=True, exclusive=True)
        self.open()

    def open(self, writable: bool = True) -> dict[str, Any]:
        """Open an existing journal and return record 0; not writable: also one that a run is writing.

        Raises: NOT_FOUND, LOCKED, FORBIDDEN (not private), JOURNAL_DAMAGED (it is no journal, or record 0 is not
        whole), OUTPUT_FAILED (it cannot be written), BAD_REQUEST (it cannot be read).
        """
        self.close()
        try:
            try:
                self._file = _files_open_own(self.path, _files_check_journal, "O_RDWR" if writable else "O_RDONLY")
                _files_check_journal(_files_read_start(self._file.number()), self.path)
                if writable:
                    self._lock(self._file.number())
                    # What a killed process wrote may be in memory only, and the caller is going to rely on it.
                    _files_sync(self._file.number())
                return next(self._scan())[1]
            except BaseException:
                self.close()
                raise
        except FileNotFoundError as error:
            remedy = "give the path of a journal that exists"
            raise _files_failure("NOT_FOUND", "open", self.path, error, remedy) from error
        except (OSError, ValueError) as error:
            code, remedy = ("OUTPUT_FAILED", "write") if writable else ("BAD_REQUEST", "read")
            remedy = f"give a journal that this program may {remedy}"
            raise _files_failure(code, "open", self.path, error, remedy) from error

    def _lock(self, descriptor: int) -> None:
        """Take the lock of the file. Raises: LOCKED, OSError."""
        if hasattr(os, "geteuid") and not _files_flock(descriptor, "LOCK_EX"):  # Windows would lock readers out
            raise Error("LOCKED", f"journal {_json_show(self.path)} is locked by another process; wait until it has "
                        "ended")

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the offset and the content of each record after record 0, verified one by one. Reads file.

        Raises: JOURNAL_DAMAGED at the first record that is not sound, BAD_REQUEST when the file cannot be read.
        """
        from itertools import islice

        return islice(self._scan(), 1, None)

    def read_at(self, offset: int) -> dict[str, Any]:
        """Return the record at an offset once more, from the file, verified against the one before. Reads file.

        Raises: JOURNAL_DAMAGED, BAD_REQUEST when the file cannot be read.
        """
        lines = self._lines(max(offset - FILES_SEAL_SIZE - 1, 0), FILES_PAGE_BYTES)
        before = next(lines, b"")[len(FILES_SEAL) : -3] if offset else b""
        line = next(lines, b"")
        size, _ = _files_find_record(line, before)
        return self._read(line[:size], "a record", offset)

    def add(self, record: Mapping[str, Any], text: str = "") -> int:
        """Queue a record for the next flush and return the offset that it will have. Raises: _JsonFault.

        text: further members as JSON text, each after a comma.
        """
        if not self._queue:
            for _ in self._scan():
                pass
        place = self._queue[-1][1]
        self._queue.append(_files_make_record(record, place, text))
        return place[0]

    def flush(self) -> None:
        """Write all that is queued, durable when this returns. Writes file.

        Raises: OUTPUT_FAILED; then the file ends where it did before, and what was queued is dropped.
        """
        interrupt = None
        while len(self._queue) > 1:
            queue = self._queue
            start = queue[0][1][0] - len(queue[0][0])
            try:
                self._write(start, b"".join([line for line, _ in queue]))
            except KeyboardInterrupt as error:
                interrupt = error  # what has happened is recorded first
            except Error:
                self._queue = queue[:1]
                raise
            except OSError as error:
                self._queue = queue[:1]
                try:
                    os.ftruncate(self._file.number(), start)
                except OSError:
                    pass  # it is cut off before the next write
                remedy = "remove the cause, then go on with the same journal"
                raise _files_failure("OUTPUT_FAILED", "write", self.path, error, remedy) from error
            else:
                self._queue = [(b"", queue[-1][1])]
                self.torn = 0
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Close the file; what is queued and not flushed is dropped."""
        self._file.close(unlock=True)
        self._queue, self._is_dirty, self.torn = [], False, 0

    def _check_path(self) -> int:
        """Return the descriptor; refuse to write what no later run would find at the path.

        Raises: OUTPUT_FAILED, OSError.
        """
        descriptor = self._file.number()
        try:
            state = os.lstat(self.path)
            if (state.st_dev, state.st_ino) == self._file.place and state.st_nlink == 1:
                return descriptor
        except (FileNotFoundError, NotADirectoryError):
            pass
        raise Error("OUTPUT_FAILED", f"journal {_json_show(self.path)} was moved, replaced, removed or linked while it "
                    "was in use; put it back, for without it what was done would be done again")

    def _write(self, start: int, data: bytes) -> None:
        """Write data at an offset, as the new end of the file. Raises: OUTPUT_FAILED, OSError."""
        descriptor = self._check_path()
        if self._is_dirty:
            os.ftruncate(descriptor, start)
            os.fsync(descriptor)
        self._is_dirty = True
        os.lseek(descriptor, start, os.SEEK_SET)
        while data:
            data = data[os.write(descriptor, data) :]
        _files_sync(descriptor)
        self._is_dirty = False

    def _scan(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the offset and the content of each record, then set what add and flush go on from.

        Raises: JOURNAL_DAMAGED, BAD_REQUEST.
        """
        from hashlib import sha256

        offset, number, digest = 0, 0, b""
        lead, torn = b"", 0  # the line end that the last record lacks; how many bytes behind it are to be cut off
        lines = self._lines(0, FILES_BLOCK_BYTES)
        for line in lines:
            size, after = len(line) - 1, sha256(digest + line[: -FILES_SEAL_SIZE - 1]).hexdigest().encode()
            if not line.endswith(FILES_SEAL + after + b'"}\n'):
                size, after = _files_find_record(line, digest)
                rest = line[size:]
                is_torn = _files_is_lost(rest, offset + size) or not size and not line.endswith(b"\n")
                if rest and not (is_torn and next(lines, None) is None):
                    raise self._damage(f"record {number + bool(size)}", offset + size)
                lead, torn = b"\n" if size else b"", len(rest)
                if not size:
                    break
            yield offset, self._read(line[:size], f"record {number}", offset)
            offset, number, digest = offset + size + 1, number + 1, after
        if number == 0:
            raise self._damage("record 0", 0)
        if not self._queue:
            self.torn, self._is_dirty = torn, torn > 0
            self._queue = [(lead, (offset, number, digest))]

    def _lines(self, offset: int, block_bytes: int) -> Iterator[bytes]:
        """Yield the lines of the file from an offset on, with their line ends; the last one may have none."""
        from io import BytesIO

        pieces = []  # of one line
        while True:
            try:
                descriptor = self._file.number()
                os.lseek(descriptor, offset, os.SEEK_SET)  # others read and write between two blocks
                block = os.read(descriptor, block_bytes)
            except OSError as error:
                remedy = "give a journal that this program may read"
                raise _files_failure("BAD_REQUEST", "read", self.path, error, remedy) from error
            offset += len(block)
            for piece in BytesIO(block):
                pieces.append(piece)
                if piece.endswith(b"\n"):
                    yield b"".join(pieces)
                    pieces = []
            if not block:
                break
        if pieces:
            yield b"".join(pieces)

    def _read(self, line: bytes, which: str, offset: int) -> dict[str, Any]:
        """Return the content of a whole record; which: what a refusal calls it. Raises: JOURNAL_DAMAGED."""
        try:
            record: dict[str, Any] = self._decode(str(line[:-FILES_SEAL_SIZE], "utf-8") + "}")
            return record
        except (ValueError, RecursionError):  # another program sealed it
            raise self._damage(which, offset) from None

    def _damage(self, which: str, offset: int) -> Error:
        """Return the refusal of a journal whose sound part ends at this offset."""
        old, new = _files_shell(self.path), _files_shell(self.path + ".new")
        remedy = f"run (umask 077; head -c {offset} {old} > {new} && mv -f {new} {old})" if offset else "remove it"
        lost = "what follows" if offset else "what it holds"
        message = f"journal {_json_show(self.path)} is damaged in {which} (sound up to byte {offset})"
        return Error("JOURNAL_DAMAGED", f"{message}; restore it from a copy, or {remedy} to have {lost} forgotten, and "
                     "done again by whoever works by it")
# endregion FILES


# region PATHS -- the sandbox: resolve below a root, open below a root
# needs: LIMITS ERRORS JSON FILES
# Two guarantees, and which is which:
#
#   resolve   CHECKED. At the moment of the check the path, with every link followed, lay inside the root. The function
#             receives that resolved path; whoever can write inside the root can still put a link there before it is
#             used. Enough where only the caller is distrusted, and not other programs in the folder.
#   open, unlink, rename, mkdir, listdir
#             PINNED. The root is held open from the start; every step goes from descriptor to descriptor and follows
#             no link, so whatever others do meanwhile, no file outside the root is read, changed or made. Only files
#             are opened, no devices or pipes, and for writing only those with one name: a second name (hard link) may
#             belong to the world outside. (For reading, a hard link is a file like any other. A folder that someone
#             moves out of the root while a call stands in it stays that call's folder.)
#
# The root is known by what it is, not by its name: inside is what has the folder held since the start above it. So
# "/srv/share-x" is not inside "/srv/share"; "/SRV/share" is that root too where the file system says that it is the
# very same folder (no case, other accents, a second mount); and a root that was moved or replaced is noticed.
# Text of a path: "/" separates; "." and empty parts count for nothing; ".." is the parent of what stands before it once
# links are followed. On POSIX "C:\x" and "file://x" are odd names inside the root; on Windows they are refused.

#: Names that Windows opens as devices in every folder, with any ending.
PATHS_WINDOWS_DEVICES = frozenset(
    (
        "con prn aux nul clock$ conin$ conout$ com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 "
        "lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9"
    ).split()
)
PATHS_WINDOWS_CHARACTERS = '<>"|?*'  # like the control characters, in no Windows name
PATHS_NAME_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
PATHS_NAME_LATER = PATHS_NAME_FIRST | frozenset("._-")
PATHS_STANDARD_DESCRIPTORS = 3  # 0, 1 and 2 belong to the streams, also while they are closed


#: ``App(sandbox=nk.UNCONFINED)``: path arguments reach the function as typed, on every surface, also from models.
UNCONFINED = _ErrorsMark("UNCONFINED")


def _paths_refusal(text: str, why: str, remedy: str) -> Error:
    """Return the refusal of one path: what was given, cut and safe to show, why, and what to do. Pure."""
    return Error("SANDBOX_ESCAPE", f"path {_json_show(text)} {why}; {remedy}")


def _paths_outside(text: str, root: str) -> Error:
    """Return the refusal of a path that leads out of the root. Pure."""
    return _paths_refusal(
        text, f"leads outside the sandbox {_json_show(root, FILES_SHOWN_CHARACTERS)}", "give a path inside it")


def _paths_check_text(text: object) -> None:
    """Refuse what no file system takes: no text, empty, a NUL, a part over 255 bytes, characters without bytes.

    The whole check where an application has no sandbox; anything else goes to the function as typed. Pure.

    Raises: SANDBOX_ESCAPE.
    """
    if not isinstance(text, str):
        raise Error("SANDBOX_ESCAPE", f"a path must be text, not {type(text).__name__}; give it as a string")
    if not text:
        raise _paths_refusal(text, "is empty", "give the name of a file or folder")
    if "\0" in text:
        raise _paths_refusal(text, "holds a NUL character, which no file name can have", "leave it out")
    try:
        parts = os.fsencode(text.replace("\\", "/") if os.name == "nt" else text).split(b"/")
    except UnicodeEncodeError:
        raise _paths_refusal(text, "holds a character that no file name can have here", "leave it out") from None
    longest = max(map(len, parts))
    if longest > PATHS_COMPONENT_BYTES:
        raise _paths_refusal(text, f"has a part of {longest:,} bytes, and a file name holds at most "
                             f"{PATHS_COMPONENT_BYTES}", "shorten it")


def _paths_is_name(text: str) -> bool:
    """Tell whether text is one plain file name that means the same everywhere: ``[A-Za-z0-9][A-Za-z0-9._-]{0,63}``.

    Not a device of Windows and without a dot at its end. What names a stored thing (a profile) must pass. Pure.

    >>> [_paths_is_name(name) for name in ("ok..name", "../x", "-rf", "nul.txt", "")]
    [True, False, False, False, False]
    """
    return (
        0 < len(text) <= PATHS_NAME_CHARACTERS
        and text[0] in PATHS_NAME_FIRST
        and PATHS_NAME_LATER.issuperset(text)
        and _paths_windows_fault(text) is None
    )


def _paths_windows_fault(text: str) -> str | None:
    """Return why Windows would take a path for something else than a file below a folder; None if it would not.

    Pure, and the same on every system.

    >>> _paths_windows_fault("notes/NUL.txt")
    'names a device of Windows'
    """
    text = text.replace("/", "\\")
    if text.startswith("\\\\") or text.startswith("\\??\\"):
        return "names a network share or a device"
    if ":" in text:
        return "names a drive or a stream"
    if any(character < " " or character in PATHS_WINDOWS_CHARACTERS for character in text):
        return "holds a character that Windows allows in no name"
    if not text.isascii():
        import unicodedata

        text = unicodedata.normalize("NFKC", text)  # COM with a superscript 1 is COM1 to Windows
    for part in text.split("\\"):
        if part not in (".", "..") and part.endswith((".", " ")):
            return "has a part that ends in a dot or a blank, which Windows drops"
        if part.partition(".")[0].rstrip(" ").casefold() in PATHS_WINDOWS_DEVICES:
            return "names a device of Windows"
    return None


def _paths_step(folder: int, name: str, flags: int, text: str) -> int:
    """Open a name in an open folder, never through a link; errors are about the path that was given."""
    import stat

    try:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except FileExistsError:
        raise
    except OSError as error:
        error.filename = text
        try:
            linked = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            raise error from None
        if linked:
            raise _paths_refusal(
                text, "goes through a link, and no link is followed here", "give the path without links") from None
        raise


def _paths_check_file(state: os.stat_result, writing: bool, text: str) -> None:
    """Refuse devices, pipes and sockets, and for writing a file that has other names. Raises: SANDBOX_ESCAPE."""
    import stat

    if _files_is_special(state.st_mode):
        raise _paths_refusal(text, "is a device, a pipe or a socket", "give a file")
    if writing and stat.S_ISREG(state.st_mode) and state.st_nlink != 1:
        raise _paths_refusal(text, f"has {state.st_nlink} names (hard links), one of which may lie outside",
                             "copy the file and write to the copy")


def _paths_open_file(folder: int, name: str, flags: int, text: str) -> int:
    """Open one file in an open folder; nothing is changed, not even its length, before it has proven harmless."""
    writing = bool(flags & (os.O_WRONLY | os.O_RDWR))
    if not flags & os.O_EXCL:
        try:  # opening a device can itself have an effect
            _paths_check_file(os.stat(name, dir_fd=folder, follow_symlinks=False), writing, text)
        except FileNotFoundError:
            pass
    descriptor = _paths_step(folder, name, flags & ~os.O_TRUNC | _files_flags("O_NONBLOCK"), text)
    try:
        _paths_check_file(os.fstat(descriptor), writing, text)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _paths_hold(path: str) -> int:
    """Return a descriptor of a folder, above those of the standard streams, which App.main may still put in place."""
    import fcntl

    descriptor = os.open(path, _files_flags("O_PATH", "O_DIRECTORY", "O_NOFOLLOW"))
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, PATHS_STANDARD_DESCRIPTORS)
    finally:
        os.close(descriptor)


class Sandbox:
    """A folder that path arguments must stay below; the head of PATHS says what resolve and the others guarantee.

    The pinned functions take an absolute path inside the root, as resolve returns it, or one that counts from the root.
    They follow no link, refuse ".." and raise OSError as their namesakes in ``os`` do. They need POSIX (a walk from
    descriptor to descriptor); elsewhere they refuse with FORBIDDEN.
    """

    def __init__(self, root: str) -> None:
        """Hold the folder. Raises: RegistrationError when there is no such folder. Reads the file system."""
        self._descriptor = -1  #: the root, held open; -1 after close() and where there are no folder descriptors
        if not isinstance(root, str) or not root:
            raise RegistrationError("the sandbox must be the path of a folder, and not empty")
        try:
            self.root = os.path.realpath(root)  #: absolute, links followed
            if os.name != "nt":
                self._descriptor = _paths_hold(self.root)
            #: tells this folder from any other
            self._state = os.stat(os.path.join(self.root, "") if self._descriptor < 0 else self._descriptor)
        except (OSError, ValueError):
            raise RegistrationError(f"the sandbox {_json_show(root)} is not a folder that this program can enter; "
                                    "create it or name another") from None

    def close(self) -> None:
        """Let go of the folder; the pinned functions refuse from here on. Closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._descriptor >= 0:
            close(self._descriptor)

    def resolve(self, text: str, base: str) -> str:
        """Return the absolute path of what text names, all links followed, provided that it lies inside the root.

        base: the folder that a relative text counts from; itself counted from the root unless absolute. What does not
        exist yet is resolved through its nearest existing parent. The root itself (".") is inside. The answer is
        CHECKED, not pinned. Reads the file system.

        Raises: SANDBOX_ESCAPE for what lies outside, is empty, holds a NUL, has a part over 255 bytes, begins with
        ``~``, is a device, a pipe or a socket, or cannot be examined; on Windows for what _paths_windows_fault names.
        """
        _paths_check_text(text)
        size = len(os.fsencode(text))
        if size > PATHS_TEXT_BYTES:
            raise _paths_refusal(
                text, f"has {size:,} bytes, and a path holds at most {PATHS_TEXT_BYTES:,}", "shorten it")
        if text.startswith("~"):
            raise _paths_refusal(text, "begins with ~, which stands for no folder here", "write ./~ for such a name")
        fault = _paths_windows_fault(text) if os.name == "nt" else None
        if fault is not None:
            raise _paths_refusal(text, fault, "give a plain path inside the sandbox")
        try:
            full = os.path.realpath(os.path.join(self.root, base, text))
            if os.path.realpath(full) != full:  # past links in a circle it went on by the letters alone
                raise OSError(0, "links in a circle")
            inside = self._inside(full)
            if inside is None:
                self._check_root()
                raise _paths_outside(text, self.root)
            try:
                if _files_is_special(os.stat(full).st_mode):
                    raise _paths_refusal(text, "is a device, a pipe or a socket", "give a file or a folder")
            except (FileNotFoundError, NotADirectoryError):
                pass  # a new file
            return inside
        except (OSError, RecursionError) as error:
            why = f"cannot be examined ({getattr(error, 'strerror', None) or 'too many links'})"
            raise _paths_refusal(text, why, "give a path that this program can look up") from None

    def _is_root(self, path: str) -> bool:
        """Tell whether a path, its own link not followed, is the very folder that is held."""
        try:
            return os.path.samestat(os.lstat(path), self._state)
        except OSError:
            return False

    def _inside(self, full: str) -> str | None:
        """Return a path without links by the root's own name; None when it does not lie inside."""
        rest: list[str] = []
        while not self._is_root(full):
            parent, name = os.path.split(full)
            if not name:
                return None
            full, rest = parent, [name, *rest]
        return os.path.join(self.root, *rest)

    def _check_root(self) -> None:
        """Refuse when what stands at the root's path is no longer the folder that is held."""
        if not self._is_root(self.root):
            raise Error("SANDBOX_ESCAPE", f"the sandbox {_json_show(self.root, FILES_SHOWN_CHARACTERS)} was moved or "
                        "replaced while this program ran; start the program again")

    def _parts(self, path: str) -> list[str]:
        """Return the names of a path below the root; refuse what a pinned walk cannot answer for."""
        if os.open not in os.supports_dir_fd:
            raise Error("FORBIDDEN", "this system cannot open files below a held folder; "
                        "use the resolved path itself, which is checked but not pinned")
        if self._descriptor < 0:
            raise Error("FORBIDDEN", "the sandbox is closed; use it while the program runs")
        _paths_check_text(path)
        if ".." in path.split("/"):
            raise _paths_refusal(path, 'has a part ".."', "give the path without it")
        top, below = self.root.rstrip("/") + "/", path
        if path.startswith("/"):
            if not (path + "/").startswith(top):
                raise _paths_outside(path, self.root)
            below = path[len(top) :]
        self._check_root()
        return [part for part in below.split("/") if part not in ("", ".")]

    def _enter(self, path: str, root: bool) -> tuple[int, str]:
        """Return a descriptor of the folder that holds a path, for the caller to close, and the path's last name."""
        *parts, name = self._parts(path) or ["."]
        if name == "." and not root:
            raise _paths_refusal(path, "is the sandbox itself", "name something inside it")
        descriptor = os.dup(self._descriptor)
        for part in parts:
            try:
                deeper = _paths_step(descriptor, part, _files_flags("O_PATH", "O_DIRECTORY"), path)
            finally:
                os.close(descriptor)
            descriptor = deeper
        return descriptor, name

    def _act(self, act: Callable[..., Any], *paths: str, root: bool = False) -> Any:
        """Return act(folder, name) of a path, or of both paths: each reached without a link. root: it may be that."""
        held: list[Any] = []
        try:
            for path in paths:
                held += self._enter(path, root)
            return act(*held)
        except OSError as error:
            if error.filename2 is not None:
                error.filename, error.filename2 = paths
            elif len(paths) == 1:
                error.filename = paths[0]
            raise
        finally:
            for descriptor in held[::2]:
                os.close(descriptor)

    def open(self, path: str, mode: str = "r", **options: Any) -> IO[Any]:
        """Open a file below the root, PINNED; the file object is that of the built-in open().

        options: its buffering, encoding (by default UTF-8), errors, newline. New files get their mode from the umask.
        "w" empties the file only after it has proven to be a regular file with one name. Reads, writes file.

        Raises: SANDBOX_ESCAPE for a link on the way, a device, a pipe, a socket, for writing a file with several names.
        """
        _paths_check_text(path)
        if "b" not in mode:
            options.setdefault("encoding", "utf-8")

        def opener(_path: str, flags: int) -> Any:
            return self._act(lambda folder, name: _paths_open_file(folder, name, flags, path), path)

        return open(path, mode, opener=opener, **options)

    def unlink(self, path: str) -> None:
        """Remove a file below the root, PINNED; of a link the link itself. Writes file."""
        self._act(lambda folder, name: os.unlink(name, dir_fd=folder), path)

    def mkdir(self, path: str) -> None:
        """Make one folder below the root, PINNED; its parent must exist. Writes file."""
        self._act(lambda folder, name: os.mkdir(name, dir_fd=folder), path)

    def rename(self, source: str, target: str) -> None:
        """Rename within the root, PINNED at both ends; a file or link at the target is replaced. Writes file."""
        self._act(lambda old, name, new, later: os.rename(name, later, src_dir_fd=old, dst_dir_fd=new), source, target)

    def listdir(self, path: str = ".") -> list[str]:
        """Return the sorted names in a folder below the root, PINNED. Reads the file system."""
        flags = _files_flags("O_DIRECTORY")
        listed = self._act(lambda folder, name: _paths_step(folder, name, flags, path), path, root=True)
        try:
            return sorted(os.listdir(listed))
        finally:
            os.close(listed)
# endregion PATHS


# region FORMAT -- formats, ECMA-262 patterns
# needs: (nothing)
# A format is a name, the words for what it expects, and a check of text. The standard library is asked about IPv6 alone
# (its other readers accept too much); the grammars of RFCs are written in the language of re. Dates, times, decimals
# and UUIDs, the formats of annotations, import nothing: re costs half a start of the interpreter.
#
# Pattern: ECMA-262 with the u flag, read by one scanner and written again in the language of re, so that `$` is the
# very end, `\d` `\w` `\b` are ASCII, `\s` and `.` are ECMA's, and what only Python understands (`\Z`, `(?P<n>..)`,
# `a++`) is refused. Groups become numbers. A pattern is the program's own text: it may still take exponential time, as
# (a|aa)+ does, though the plainest kind, (a+)+, is written simpler. Whether text is a pattern is told in linear time.

FORMAT_DIGITS = frozenset("0123456789")
FORMAT_HEX = frozenset("0123456789abcdefABCDEF")
FORMAT_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
FORMAT_ALNUM = FORMAT_LETTERS | FORMAT_DIGITS
FORMAT_LABEL_CHARACTERS = 63  # RFC 1035 2.3.4
FORMAT_HOST_CHARACTERS = 253  # RFC 1035 3.1: 255 octets less the first length and the root
FORMAT_LOCAL_OCTETS = 64  # RFC 5321 4.5.3.1.1
FORMAT_OWN = ("decimal", "iso-date-time", "iso-time")  # of annotations, no JSON Schema's: always judged
FORMAT_EXPONENT_DIGITS = 4  # of a decimal: arithmetic with a longer one takes all memory
FORMAT_PATTERN_CHARACTERS = 10_000  # re needs up to 10 us for each
FORMAT_ASSIGNED_END = 0x40000  # planes 0 to 3; above it categories change only here:
FORMAT_EDGES = (
    0x40000, 0xE0001, 0xE0002, 0xE0020, 0xE0080, 0xE0100, 0xE01F0, 0xF0000, 0xFFFFE, 0x100000, 0x10FFFE
)  # fmt: skip
#: What no label holds (RFC 5892 2.3, 2.4, 2.6, 2.9), first and last of each run
FORMAT_UNJOINED = (
    "\u0640\u0640\u07fa\u07fa\u302e\u302f\u3031\u3035\u303b\u303b\u034f\u034f\u17b4\u17b5\u180b\u180f"
    "\ufe00\ufe0f\U000e0100\U000e01ef\u20d0\u20ff\U0001d100\U0001d24f\u1100\u11ff\ua960\ua97f\ud7b0\ud7ff"
)

# Grammars in the language of re: no text fits a rule in two ways, so that each takes linear time. What stands outside
# ASCII is folded (see _format_fold); whether each % begins an escape is asked once, ahead of all else.
FORMAT_ESCAPES = "(?!.*%(?![0-9A-Fa-f]{2}))"
FORMAT_NAME = r"-\w.~!$&'()*+,;=%\xa0"  # in classes: unreserved and sub-delims of RFC 3986, and escapes
FORMAT_URI_PARTS = r"(?:([A-Za-z0-9+.-]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?"  # RFC 3986 appendix B
FORMAT_URI_REST = (  # RFC 3986 3, from behind the scheme: authority and path, or path; query, fragment
    r"(?://(?:[<name>:]*@)?(?:\[(?:[vV][0-9A-Fa-f]+\.[-\w.~!$&'()*+,;=:]+|([0-9A-Fa-f:.]+))\]|[<name>]*)(?::[0-9]*)?"
    r"(?:/[<name>:@/]*)?|(?!//)[<name>:@/]*)(?:\?[<name>:@/?\x80]*)?(?:#[<name>:@/?]*)?"
).replace("<name>", FORMAT_NAME)
FORMAT_URI = FORMAT_ESCAPES + "[A-Za-z][A-Za-z0-9+.-]*:" + FORMAT_URI_REST
FORMAT_REFERENCE = FORMAT_ESCAPES + "(?:[A-Za-z][A-Za-z0-9+.-]*:|(?![^/?#]*:))" + FORMAT_URI_REST
FORMAT_TEMPLATE = (  # RFC 6570 2, without the operators it reserves, with erratum 6937 ("'")
    r"[<literal>]*(?:\{[+#./;?&]?<variable>(?:,<variable>)*\}[<literal>]*)*"
).replace("<literal>", FORMAT_NAME + r":@/?#\[\]\x80").replace(
    "<variable>", r"[\w%]+(?:\.[\w%]+)*(?:\*|:[1-9][0-9]{0,3})?"
)  # fmt: skip
FORMAT_LOCAL = (  # RFC 5321 4.1.2: words with dots between them, or text in quotes
    r"(?:[-\w!#$%&'*+/=?^`{|}~\xa0]+\.)*[-\w!#$%&'*+/=?^`{|}~\xa0]+" r'|"(?:[ !#-\[\]-~\xa0]|\\[ -~])*"'
)
FORMAT_DURATION = (  # RFC 3339 appendix A: units in order and without a gap (P1Y2D and PT1H1S have one)
    "P(?:[0-9]+W|(?=.)(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?"
    "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?)"
)
FORMAT_POINTER = "(?:/[^~]*(?:~[01][^~]*)*)?"  # RFC 6901 3
#: draft-bhutton-relative-json-pointer-00, with its index steps (1+2/a)
FORMAT_RELATIVE_POINTER = "(?:0|[1-9][0-9]*)(?:[+-][1-9][0-9]*)?(?:#|%s)" % FORMAT_POINTER


def _format_is_made_of(text: str, allowed: frozenset[str]) -> bool:
    return bool(text) and allowed.issuperset(text)


def _format_is_date(text: str) -> bool:
    """RFC 3339 full-date; year 0000 is one."""
    year, month, day = text[:4], text[5:7], text[8:]
    if len(text) != 10 or text[4] + text[7] != "--" or not FORMAT_DIGITS.issuperset(year + month + day):
        return False
    leap = int(year[:2] if year[2:] == "00" else year[2:]) % 4 == 0
    days = {"02": 29 if leap else 28, "04": 30, "06": 30, "09": 30, "11": 30}.get(month, 31)
    return "01" <= month <= "12" and 1 <= int(day) <= days


def _format_is_time(text: str) -> bool:
    """RFC 3339 full-time; second 60 only where it is 23:59 in UTC."""
    clock, rest = text[:8], text[8:]
    if rest[:1] == ".":
        digits, rest = rest, rest[1:].lstrip("0123456789")
        if len(digits) - len(rest) < 2:
            return False
    rest = "+00:00" if rest in ("Z", "z") else rest
    fields = clock.split(":") + rest[1:].split(":")
    if rest[:1] not in ("+", "-") or list(map(len, fields)) != [2] * 5 or not FORMAT_DIGITS.issuperset("".join(fields)):
        return False
    hour, minute, second, hours, minutes = map(int, fields)
    if hour > 23 or minute > 59 or hours > 23 or minutes > 59:
        return False
    shift = hours * 60 + minutes
    minutes = hour * 60 + minute + (shift if rest[0] == "-" else -shift)
    return second < 60 or (second == 60 and minutes % 60 == 59 and minutes // 60 % 24 == 23)


def _format_is_date_time(text: str, is_time: Callable[[str], bool]) -> bool:
    return text[10:11] in ("T", "t") and _format_is_date(text[:10]) and is_time(text[11:])


def _format_is_iso_time(text: str) -> bool:
    """RFC 3339 full-time whose offset and seconds may be left out (ISO 8601 4.2.2.3, 4.2.5.1)."""
    offset = "Z" if text[-1:] not in ("Z", "z") and text[-6:-5] not in ("+", "-") else ""
    seconds = ":00" if text[5:6] not in (":", ".") else ""
    return _format_is_time(text[:5] + seconds + text[5:] + offset)


def _format_is_decimal(text: str) -> bool:
    """RFC 8259 number, with an optional plus and an exponent that decimal.Decimal holds without effort."""
    number, mark, power = text[text[:1] in ("+", "-") :].replace("E", "e").partition("e")
    whole, point, fraction = number.partition(".")
    power = power[power[:1] in ("+", "-") :]
    parts = [whole] + [fraction] * bool(point) + [power] * bool(mark)
    good = all(_format_is_made_of(part, FORMAT_DIGITS) for part in parts) and len(power) <= FORMAT_EXPONENT_DIGITS
    return good and (whole[0] != "0" or whole == "0")


def _format_is_uuid(text: str) -> bool:
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and FORMAT_HEX.issuperset("".join(parts))


def _format_is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(
        FORMAT_DIGITS.issuperset(part) and 0 < len(part) <= 3 and part == str(int(part)) and int(part) <= 255
        for part in parts
    )


def _format_is_ipv6(text: str) -> bool:
    """RFC 4291 2.2, without zone and prefix."""
    from ipaddress import IPv6Address

    try:
        IPv6Address(text)
    except ValueError:
        return False
    # Early 3.9 takes an IPv4 address at its end in another spelling.
    return "%" not in text and ("." not in text or _format_is_ipv4(text.rpartition(":")[2]))


def _format_fold(character: str) -> str:
    """Return what stands for a character in a grammar: \xa0 for ucschar and \x80 for iprivate of RFC 3987."""
    code = ord(character)
    if code < 0x80:
        return character
    if code < 0xA0 or 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0:
        return "\0"
    if 0xE000 <= code < 0xF900 or code >= 0xF0000:
        return "\x80"
    return "\0" if 0xFFF0 <= code < 0x10000 or 0xE0000 <= code < 0xE1000 else "\xa0"


def _format_fits(text: str, rule: str, wide: bool = False) -> bool:
    """Tell whether text fits a rule in the language of re, whose groups are IPv6 addresses.

    wide: characters outside ASCII are judged too, by what _format_fold puts in their place; else there are none.
    """
    import re

    if not text.isascii():
        text = "".join(map(_format_fold, text)) if wide else "\0"
    found = re.fullmatch(rule, text)  # \w is ASCII in what is folded
    return found is not None and all(_format_is_ipv6(address) for address in found.groups() if address is not None)


def _format_unquote(text: str) -> str:
    """Undo percent escapes (RFC 3986 2.1). Pure."""
    if "%" in text:
        from urllib.parse import unquote

        text = unquote(text)
    return text


def _format_join_uri(base: str, reference: str) -> str:
    """Resolve a URI reference without fragment against a base (RFC 3986 5.2). Pure."""
    import re

    split: Any = re.compile(FORMAT_URI_PARTS).match
    scheme, authority, path, query = split(reference).groups()
    if scheme is None:
        scheme, base_authority, base_path, base_query = split(base).groups()
        if authority is None:
            authority = base_authority
            if not path:
                path, query = base_path, base_query if query is None else query
            elif path[0] != "/":
                folder, slash, _ = base_path.rpartition("/")
                path = folder + (slash or "/" * (authority is not None)) + path
    kept: list[str] = []
    parts = path.split("/")
    for part in parts:
        if part == "..":
            del kept[max(1, len(kept) - 1) :]
        elif part != ".":
            kept.append(part)
    path = "/".join(kept + [""] * (parts[-1] in (".", "..")))
    head = (scheme + ":" if scheme is not None else "") + ("//" + authority if authority is not None else "")
    return head + path + ("?" + query if query is not None else "")


def _format_is_email(text: str, wide: bool) -> bool:
    """RFC 5321 mailbox; `wide`: RFC 6531."""
    local, _, domain = text.rpartition("@")
    if len(local.encode("utf-8", "surrogatepass")) > FORMAT_LOCAL_OCTETS or not _format_fits(local, FORMAT_LOCAL, wide):
        return False
    if domain[:1] == "[" and domain[-1:] == "]":
        literal = domain[1:-1]
        return _format_is_ipv6(literal[5:]) if literal[:5].lower() == "ipv6:" else _format_is_ipv4(literal)
    return _format_is_idn_hostname(domain) if wide else _format_is_hostname(domain)


def _format_is_hostname(text: str) -> bool:
    """RFC 1123 2.1; a label that begins with xn-- must be one that IDNA could have written."""
    return text.isascii() and len(text) <= FORMAT_HOST_CHARACTERS and all(map(_format_is_label, text.split(".")))


def _format_is_label(label: str) -> bool:
    good = _format_is_made_of(label, FORMAT_ALNUM | {"-"}) and "-" not in (label[0], label[-1])
    if not good or len(label) > FORMAT_LABEL_CHARACTERS:
        return False
    if label[:4].lower() != "xn--":
        return True
    wide = _format_read_punycode(label)
    return not wide.isascii() and _format_is_wide_label(wide) and wide.encode("punycode") == label[4:].lower().encode()


def _format_read_punycode(label: str) -> str:
    """Return what stands behind the xn-- of a label (RFC 3492), "" for nothing that could. Pure."""
    try:
        return label[4:].lower().encode("ascii").decode("punycode")
    except (UnicodeError, OverflowError):
        return ""


def _format_host_ascii(text: str) -> str | None:
    """Return the ASCII form of a host name in any script (IDNA 2008, RFC 5891 4 and 5892), None for what is none."""
    if len(text) > FORMAT_HOST_CHARACTERS:
        return None
    labels = []
    for mark in "\u3002\uff0e\uff61":
        text = text.replace(mark, ".")
    for label in text.split("."):
        if not label.isascii():
            if not _format_is_wide_label(label):
                return None
            label = "xn--" + label.encode("punycode").decode("ascii")
            if len(label) > FORMAT_LABEL_CHARACTERS:
                return None
        elif not _format_is_label(label) or (label[2:4] == "--" and label[:2].lower() != "xn"):
            return None
        labels.append(label)
    host = ".".join(labels)
    return host if len(host) <= FORMAT_HOST_CHARACTERS else None


def _format_is_idn_hostname(text: str) -> bool:
    return _format_host_ascii(text) is not None


def _format_is_wide_label(label: str) -> bool:
    """RFC 5891 4.2 for a label with characters outside ASCII: normal form, hyphens, characters, context, direction."""
    from unicodedata import bidirectional, category, normalize

    if "-" in (label[0], label[-1]) or label[2:4] == "--" or category(label[0])[0] == "M":
        return False
    digits = {ord(character) >> 4 for character in label if category(character) == "Nd"}
    if normalize("NFC", label) != label or digits >= {0x66, 0x6F}:  # both kinds of Arabic digits (A.8, A.9)
        return False
    if not all(_format_is_label_character(label, index) for index in range(len(label))):
        return False
    kinds = [bidirectional(character) for character in label]
    if not {"R", "AL", "AN"}.intersection(kinds):
        return True
    while kinds[-1] == "NSM":
        kinds.pop()
    return (  # RFC 5893 2, rules 1 to 4
        kinds[0] in ("R", "AL")
        and not {"L", "LRE", "LRO", "RLE", "RLO", "PDF", "S", "WS", "B"}.intersection(kinds)
        and kinds[-1] in ("R", "AL", "EN", "AN")
        and not {"EN", "AN"}.issubset(kinds)
    )


def _format_is_label_character(label: str, index: int) -> bool:
    """RFC 5892 2 and appendix A; scripts are known by the names of their characters."""
    from unicodedata import category, combining, name, normalize

    character, before, after = label[index], label[index - 1 : index], label[index + 1 : index + 2]
    code = ord(character)
    if code < 128:
        return character in "-0123456789abcdefghijklmnopqrstuvwxyz"
    if character in "\xdf\u03c2\u06fd\u06fe\u0f0b\u3007":
        return True
    if character == "\xb7":
        return before == after == "l"
    if character == "\u0375":
        return bool(after) and name(after, "").startswith("GREEK")
    if character in "\u05f3\u05f4":
        return bool(before) and name(before, "").startswith("HEBREW")
    if character == "\u30fb":
        return any(name(c, "").startswith(("HIRAGANA", "KATAKANA L", "CJK", "IDEOGRAPHIC")) for c in label)
    if code in (0x200C, 0x200D):
        return bool(before) and (combining(before) == 9 or (code == 0x200C and _format_is_joined(label, index)))
    if any(first <= character <= last for first, last in zip(FORMAT_UNJOINED[::2], FORMAT_UNJOINED[1::2])):
        return False
    stable = normalize("NFKC", normalize("NFKC", character).casefold()) == character
    return stable and category(character) in ("Ll", "Lu", "Lo", "Nd", "Lm", "Mn", "Mc")


def _format_is_joined(label: str, index: int) -> bool:
    """RFC 5892 A.1: letters that join across a ZERO WIDTH NON-JOINER, known by their Arabic presentation forms."""
    from unicodedata import category, lookup, name

    for part, form in ((label[:index][::-1], " INITIAL FORM"), (label[index + 1 :], " FINAL FORM")):
        letter = next((c for c in part if category(c) not in ("Mn", "Me", "Cf")), "")
        try:
            lookup(name(letter) + form)
        except (KeyError, ValueError, TypeError):
            return False
    return True


#: ECMA-262 WhiteSpace and LineTerminator, and everything else, as bodies of classes of re
FORMAT_SPACE = "\\t-\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
FORMAT_NOT_SPACE = (
    "\\0-\\x08\\x0e-\\x1f!-\\x9f\\xa1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e\\u2030-\\u205e"
    "\\u2060-\\u2fff\\u3001-\\ufefe\\uff00-\\U0010ffff"
)
FORMAT_LITERAL = "\\U%08x"
FORMAT_PIECES = {".": "[^\\n\\r\\u2028\\u2029]", "$": "\\Z", "{": "\\{", "}": "\\}", "]": "\\]"}
FORMAT_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
FORMAT_CATEGORIES = (  # ECMA-262 table 69: the long names and aliases of General_Category values, by their short ones
    "L Letter LC Cased_Letter Lu Uppercase_Letter Ll Lowercase_Letter Lt Titlecase_Letter Lm Modifier_Letter "
    "Lo Other_Letter M Mark M Combining_Mark Mn Nonspacing_Mark Mc Spacing_Mark Me Enclosing_Mark N Number "
    "Nd Decimal_Number Nd digit Nl Letter_Number No Other_Number P Punctuation P punct Pc Connector_Punctuation "
    "Pd Dash_Punctuation Ps Open_Punctuation Pe Close_Punctuation Pi Initial_Punctuation Pf Final_Punctuation "
    "Po Other_Punctuation S Symbol Sm Math_Symbol Sc Currency_Symbol Sk Modifier_Symbol So Other_Symbol Z Separator "
    "Zs Space_Separator Zl Line_Separator Zp Paragraph_Separator C Other Cc Control Cc cntrl Cf Format Cs Surrogate "
    "Co Private_Use Cn Unassigned"
)


def _format_pattern(source: str, judge: bool = False) -> Any:
    """Compile an ECMA-262 pattern; ``.search(text)`` of the result is true where it matches.

    judge: only whether it is one counts; classes, of which re makes tables in milliseconds, become a letter.

    Raises: ValueError with one sentence for what is no pattern, or needs what re has not (a look-behind of no fixed
    width, a script property).
    """
    import re

    if len(source) > FORMAT_PATTERN_CHARACTERS:
        raise ValueError("it is longer than %d characters" % FORMAT_PATTERN_CHARACTERS)
    text = _format_translate(source)
    if judge:
        text = re.sub(r"\[[^]]*\]", "a", text)
    for kind, names in set(re.findall(r"\\([pP])\{(\w+)\}", text)):
        text = text.replace("\\%s{%s}" % (kind, names), _format_property(names, kind == "P"))
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as fault:
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault).partition(" at pos")[0]
        raise ValueError(reason) from None


def _format_translate(source: str) -> str:
    """Write an ECMA-262 pattern in the language of re. Pure. Raises: ValueError."""
    backward = any("\\" + character in source for character in "k123456789")  # it may refer to its groups
    names = _format_group_names(source) if backward or "(?<" in source else []
    pieces: list[str] = []
    opened: list[int] = []  # numbers of the open groups, 0 for one that captures nothing, -1 for a look-behind
    closed: set[int] = set()
    seen = 0  # capturing groups so far
    quantified = 2  # 0 after an atom, 1 after a quantifier, 2 where neither `*` nor a lazy `?` may stand
    at = 0
    while at < len(source):
        character = source[at]
        bounds = _format_read_bounds(source, at) if character == "{" else character if character in "*+?" else ""
        if bounds:
            if quantified == 2 or (quantified == 1 and bounds != "?"):
                raise ValueError("there is nothing to repeat before %s" % bounds)
            piece, at, quantified = bounds, at + len(bounds), quantified + 1
            if piece in ("*", "+") and pieces[-4:-3] in (["("], ["(?:"]) and pieces[-1] == ")" and not backward:
                if pieces[-2] in ("*", "+"):  # (a+)* is (a*), and (a+)+ is (a+), but in linear time
                    pieces[-2], piece = min(piece, pieces[-2]), "{1}"
        elif character == "(":
            number, piece, at = _format_read_group(source, at)
            seen += number
            opened.append(seen if number else -piece.startswith("(?<"))
            quantified = 2
        elif character == ")":
            if not opened:
                raise ValueError("there is a ) without its (")
            number = opened.pop()
            closed.add(number)
            piece, at, quantified = ")", at + 1, 2 if number < 0 else 0
        elif character == "[":
            piece, at = _format_read_class(source, at + 1)
            quantified = 0
        elif character == "\\":
            piece, at = _format_read_atom(source, at, names, closed)
            quantified = 2 if piece[-2:] == "\\b" or piece == "(?!\\b)" else 0
        else:
            piece = FORMAT_PIECES.get(character, character)
            at, quantified = at + 1, 2 if character in "^$|" else 0
        pieces.append(piece)
    if opened:
        raise ValueError("there is a ( without its )")
    return "".join(pieces)


def _format_group_names(source: str) -> list[str]:
    """List the names of the capturing groups in order, "" for one without; references may stand before their group."""
    import re

    bare = re.sub(r"(?s)\\.|\[(?:\\.|[^]\\])*", "x", source)  # without escapes and classes
    names: list[str] = re.findall(r"\((?:(?!\?)|\?<(?![=!])([^>]*))", bare)
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise ValueError("the group name %s stands twice" % name)
        seen.add(name)
    return names


def _format_read_bounds(source: str, at: int) -> str:
    """Return the text of `{n}`, `{n,}` or `{n,m}` that begins at `at`, "" where the brace is only a brace."""
    inside, brace, _ = source[at + 1 :].partition("}")
    low, comma, high = inside.partition(",")
    good = brace and _format_is_made_of(low, FORMAT_DIGITS) and FORMAT_DIGITS.issuperset(high)
    return "{%s}" % inside if good else ""


def _format_read_group(source: str, at: int) -> tuple[int, str, int]:
    """Read what opens a group: whether it captures (1 or 0), its text for re, and where its inside begins."""
    if source[at + 1 : at + 2] != "?":
        return 1, "(", at + 1
    for opening in ("(?:", "(?=", "(?!", "(?<=", "(?<!"):
        if source.startswith(opening, at):
            return 0, opening, at + len(opening)
    name, closing, _ = source[at + 3 :].partition(">")
    if source[at + 2 : at + 3] == "<" and closing and name.replace("$", "_").isidentifier():
        return 1, "(", at + 4 + len(name)
    raise ValueError("%s does not open a group" % source[at : at + 4])


def _format_read_atom(source: str, at: int, names: list[str], closed: set[int]) -> tuple[str, int]:
    """Read the escape at `at` outside a class: its text for re and where it ends."""
    character = source[at + 1 : at + 2]
    if character in ("b", "B"):
        return "\\b" if character == "b" else "(?!\\b)", at + 2  # before 3.14 the \B of re is not in an empty text
    number = 0
    if character == "k":
        name, closing, _ = source[at + 3 :].partition(">")
        if source[at + 2 : at + 3] != "<" or not closing or not name or name not in names:
            raise ValueError("\\k names no group of the pattern")
        number, at = names.index(name) + 1, at + 4 + len(name)
    elif character in tuple("123456789"):
        digits = source[at + 1 :]
        digits = digits[: len(digits) - len(digits.lstrip("0123456789"))]
        if len(digits) > 3 or int(digits) > len(names):
            raise ValueError("the pattern has no group %s" % digits[:9])
        number, at = int(digits), at + 1 + len(digits)
    if number:  # a group that has not matched yet stands for the empty text
        return ("(?(%d)\\%d)" % (number, number) if number in closed else "(?:)"), at
    code, body, at = _format_read_escape(source, at)
    if body == FORMAT_NOT_SPACE:  # re is faster with the few
        return "[^" + FORMAT_SPACE + "]", at
    return (body if code is not None else "[" + body + "]"), at


def _format_read_class(source: str, at: int) -> tuple[str, int]:
    """Read a class from behind its bracket: its text for re and where it ends."""
    negated = source[at : at + 1] == "^"
    at += negated
    body = ""
    while source[at : at + 1] != "]":
        first, text, at = _format_read_member(source, at)
        if source[at : at + 1] == "-" and source[at + 1 : at + 2] not in ("]", ""):
            last, end, after = _format_read_member(source, at + 1)
            if first is not None and last is not None:
                if first > last:
                    raise ValueError("the range %s is out of order" % source[at - 1 : after])
                text, at = text + "-" + end, after
        body += text
    if not body:
        return ("[\\0-\\U0010ffff]" if negated else "(?!)"), at + 1
    return "[" + "^" * negated + body + "]", at + 1


def _format_read_member(source: str, at: int) -> tuple[int | None, str, int]:
    """Read one member of a class: its code point (None for a set of them), its text for re and where it ends."""
    if at >= len(source):
        raise ValueError("there is a [ without its ]")
    if source[at] != "\\":
        return ord(source[at]), FORMAT_LITERAL % ord(source[at]), at + 1
    if source[at + 1 : at + 2] == "b":
        return 8, "\\x08", at + 2
    return _format_read_escape(source, at)


def _format_read_escape(source: str, at: int) -> tuple[int | None, str, int]:
    """Read an escape: its code point and text for re, or None and the body of a class; and where it ends."""
    character = source[at + 1 : at + 2]
    end = at + 2
    if character in ("d", "D", "w", "W"):
        return None, "\\" + character, end
    if character in ("s", "S"):
        return None, FORMAT_SPACE if character == "s" else FORMAT_NOT_SPACE, end
    if character in ("p", "P"):
        name, brace, _ = source[end + 1 :].partition("}")
        if source[end : end + 1] != "{" or not brace:
            raise ValueError("\\%s takes a property in braces" % character)
        return None, "\\%s{%s}" % (character, _format_read_property(name)), end + 2 + len(name)
    code = FORMAT_CONTROLS.get(character)
    if character == "c" and FORMAT_LETTERS.issuperset(source[end : end + 1] or " "):
        code, end = ord(source[end]) % 32, end + 1
    elif character == "0" and source[end : end + 1] not in tuple("0123456789"):
        code = 0
    elif character in ("x", "u"):
        code, end = _format_read_hex(source, end, character)
        low = source[end : end + 2] == "\\u" and 0xD800 <= code < 0xDC00
        if low and source[end + 2 : end + 3] != "{":
            second, after = _format_read_hex(source, end + 2, "u")
            if 0xDC00 <= second < 0xE000:
                code, end = 0x10000 + ((code - 0xD800) << 10) + second - 0xDC00, after
    elif character and character not in FORMAT_ALNUM:
        code = ord(character)
    if code is None:
        raise ValueError("\\%s is no escape of ECMA-262" % character)
    return code, FORMAT_LITERAL % code, end


def _format_read_hex(source: str, at: int, kind: str) -> tuple[int, int]:
    size = 2 if kind == "x" else 4
    digits, end = source[at : at + size], at + size
    if kind == "u" and digits[:1] == "{":
        digits, closing, _ = source[at + 1 : at + 10].partition("}")
        size, end = len(digits) if closing else 0, at + 2 + len(digits)
    if len(digits) != size or not _format_is_made_of(digits, FORMAT_HEX) or int(digits, 16) > 0x10FFFF:
        raise ValueError("\\%s does not name a character" % kind)
    return int(digits, 16), end


def _format_read_property(name: str) -> str:
    """Return the short name of a General_Category. Raises: ValueError for others, which unicodedata does not tell."""
    words = FORMAT_CATEGORIES.split()
    key, equals, value = name.rpartition("=")
    if value not in words or (equals and key not in ("General_Category", "gc")):
        raise ValueError("\\p{%s} is no general category" % name[:40])
    return words[words.index(value) // 2 * 2]


def _format_property(short: str, negated: bool) -> str:
    """Return the body of a class for a General_Category, from this Python's own unicodedata (some 15 ms)."""
    from unicodedata import category

    wanted = ("Lu", "Ll", "Lt") if short == "LC" else short
    starts: list[int] = []  # of runs inside and outside, in turn
    for codes in (range(FORMAT_ASSIGNED_END), FORMAT_EDGES):
        for code in codes:
            if category(chr(code)).startswith(wanted) is not bool(len(starts) % 2 ^ negated):
                starts.append(code)
    starts += [sys.maxunicode + 1] * (len(starts) % 2)
    return "".join("\\U%08x-\\U%08x" % (first, end - 1) for first, end in zip(starts[::2], starts[1::2]))


def _format_is_pattern(text: str) -> bool:
    try:
        return bool(_format_pattern(text, judge=True))
    except ValueError:
        return False


#: name -> what it expects, in words; its check; and what the check takes beside the text
FORMAT_CHECKS: dict[str, Any] = {
    "date": ("a date (YYYY-MM-DD)", _format_is_date),
    "date-time": ("a date and time (YYYY-MM-DDThh:mm:ssZ)", _format_is_date_time, _format_is_time),
    "decimal": ("a decimal number", _format_is_decimal),
    "duration": ("a duration (P1DT12H)", _format_fits, FORMAT_DURATION),
    "email": ("an email address", _format_is_email, False),
    "hostname": ("a host name", _format_is_hostname),
    "idn-email": ("an email address", _format_is_email, True),
    "idn-hostname": ("a host name", _format_is_idn_hostname),
    "ipv4": ("an IPv4 address", _format_is_ipv4),
    "ipv6": ("an IPv6 address", _format_is_ipv6),
    "iri": ("an IRI", _format_fits, FORMAT_URI, True),
    "iri-reference": ("an IRI or relative reference", _format_fits, FORMAT_REFERENCE, True),
    "iso-date-time": ("an ISO 8601 date and time", _format_is_date_time, _format_is_iso_time),
    "iso-time": ("an ISO 8601 time", _format_is_iso_time),
    "json-pointer": ("a JSON pointer", _format_fits, FORMAT_POINTER, True),
    "regex": ("an ECMA-262 pattern", _format_is_pattern),
    "relative-json-pointer": ("a relative JSON pointer", _format_fits, FORMAT_RELATIVE_POINTER, True),
    "time": ("a time with its offset (hh:mm:ssZ)", _format_is_time),
    "uri": ("a URI", _format_fits, FORMAT_URI),
    "uri-reference": ("a URI or relative reference", _format_fits, FORMAT_REFERENCE),
    "uri-template": ("a URI template", _format_fits, FORMAT_ESCAPES + FORMAT_TEMPLATE, True),
    "uuid": ("a UUID", _format_is_uuid),
}


def _format_find(name: str) -> tuple[str, Callable[[str], bool]] | None:
    """Return what a format expects, in words, and its check; None for a name that is not known. Pure."""
    if name not in FORMAT_CHECKS:
        return None
    words, check, *options = FORMAT_CHECKS[name]
    return words, (lambda text: check(text, *options)) if options else check


def _format_check(name: str, text: str) -> bool | None:
    """Judge text by the name of a format; None for a name that is not known. Pure."""
    found = _format_find(name)
    return None if found is None else found[1](text)
# endregion FORMAT


# region SCHEMA -- JSON Schema 2020-12 compiled to closures; issues as data
# needs: LIMITS ERRORS JSON FORMAT
# A schema becomes a graph of nodes. A node is a dict from the Python class of a value to the one test that such a value
# must pass, None where every value does: {"type": "string"} costs one look-up and no call. A test takes the value and
# the steps that are left; it returns None, or a list of faults. A fault is a list, [rule, value, innermost key, ...,
# outermost key]: whoever went into a member appends its key on the way out, so that valid data never builds a location.
# (In types: Callable[[Any, list[int]], list[Any] | None]; the functions made here say Any.)
#
# References are followed when the graph is built. A node is a schema under the dynamic anchors bound on the way to it;
# so $dynamicRef is an edge like any other. A schema that applies to one value without end is found in the graph, and
# what only fans out is stopped by the steps. Nodes are closed innermost first: allOf and $ref become tests of their own
# node. For unevaluated* a node has marks, which tell what its keywords evaluate in a value that they accept.

SCHEMA_NULL = None.__class__
SCHEMA_ANY = (bool, SCHEMA_NULL, str, int, float, list, dict)  # bool before int, whose subclass it is
SCHEMA_NO_TEXT = (bool, SCHEMA_NULL, int, float)
SCHEMA_ONE_PIECE = (*SCHEMA_NO_TEXT, str)
SCHEMA_PLAIN: dict[Any, Any] = {str: str.__str__, int: int.__int__, float: float.__float__, list: list, dict: dict}
SCHEMA_TYPES = {
    "array": ("an array", (list,)),
    "boolean": ("true or false", (bool,)),
    "integer": ("a whole number", (int, float)),
    "null": ("null", (SCHEMA_NULL,)),
    "number": ("a number", (int, float)),
    "object": ("an object", (dict,)),
    "string": ("a string", (str,)),
}
SCHEMA_DRAFTS = {
    "http://json-schema.org/draft-06/schema": 7,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 19,
    "https://json-schema.org/draft/2020-12/schema": 20,
}
#: what a keyword takes, in words: its Python class, and where it holds schemas (one, or an array of them; map)
SCHEMA_TAKES = {
    "": (object, ""),
    "a URI reference": (str, ""),
    "a non-empty array of schemas": (list, "one"),
    "a pattern": (str, ""),
    "a schema": (object, "one"),
    "a string": (str, ""),
    "an array": (list, ""),
    "an array of schemas": (list, "one"),
    "an object": (dict, "map"),
    "an object of schemas": (dict, "map"),
    "the name of a format": (str, ""),
    "true or false": (bool, ""),
}
SCHEMA_MEMBERS = ("properties", "patternProperties", "additionalProperties")
SCHEMA_MISSING = object()  # the value of a member that is not there, the schema of a reference to nothing
SCHEMA_VERBS = ("is ", "has ", "fits ", "holds ", "takes ")  # of messages that go on from the name of their place
#: what may stand beside a $ref without a node of its own
SCHEMA_SILENT = frozenset(
    "$ref $comment $defs definitions title description default examples deprecated readOnly writeOnly".split()
)


class Issue:
    """One reason why a value does not fit a schema, as data; ``str(issue)`` is one line for people."""

    __slots__ = ("location", "keyword", "message", "expected", "received")

    def __init__(self, location: tuple[Any, ...], keyword: str, message: str, expected: str, received: str) -> None:
        self.location = location  #: keys and indexes from the root to the place, also of a member that is missing
        self.keyword = keyword  #: the keyword of the schema that refused it
        self.message = message  #: without the place: "expected a number, got true", "is required"
        self.expected = expected  #: what would have been right, in words
        self.received = received  #: kind and cut text of what was there; "***" for a secret, "nothing" where it misses

    @property
    def path(self) -> str:
        """The location as a JSON pointer."""
        return _json_pointer(self.location)

    def to_wire(self) -> dict[str, str]:
        """Return the JSON object of this issue: path, keyword, message, expected, received. Pure."""
        return {"path": self.path, **{name: getattr(self, name) for name in self.__slots__[1:]}}

    def __str__(self) -> str:
        place = ".".join(_schema_name(key) for key in self.location)
        if self.message.startswith("is not a field"):
            place = _json_show(self.location[-1])
        return _schema_line(place, self.message)

    def __repr__(self) -> str:
        return "Issue(%s)" % self


def _schema_line(place: str, message: str) -> str:
    """Join the name of a place, "" for the root, and the message of its issue to one line. Pure.

    >>> _schema_line("--count", "is required"), _schema_line("tags.0", "expected a string, got true")
    ('--count is required', 'tags.0: expected a string, got true')
    """
    if message.startswith(SCHEMA_VERBS):
        return (place or "the value") + " " + message
    return place + ": " + message if place else message


def _schema_name(key: str | int) -> str:
    """Return a key as it stands where it reads as one word, else quoted. Pure."""
    text = str(key)
    word = text.replace("-", "a").replace("_", "a").replace("$", "a").isalnum()
    return text if word and len(text) <= SCHEMA_NAME_CHARACTERS else _json_show(key)


def _schema_show(value: Any) -> str:
    """Return the cut JSON text of a value; short plain text and numbers, the usual case, without an encoder. Pure."""
    if value.__class__ is str and len(value) < SCHEMA_NAME_CHARACTERS - 1 and value.isascii():
        if value.isprintable() and '"' not in value and "\\" not in value:
            return '"' + value + '"'
    elif value.__class__ is int and value.bit_length() < 64:
        return str(value)
    return _json_show(value)


def _schema_received(value: Any, plain: bool = True) -> str:
    """Return the kind of a value, and its cut text where plain. Pure."""
    kind = {str: "string", int: "number"}.get(value.__class__) or _json_kind(value).replace("integer", "number")
    if kind == "null" or (plain and kind == "boolean"):
        return _json_show(value)
    return "the %s %s" % (kind, _schema_show(value)) if plain else ("an " if kind[0] in "ao" else "a ") + kind


def _schema_issue(fault: list[Any], hidden: Collection[tuple[Any, ...]] | None, root: Any = True) -> Issue:
    """Return the issue of a fault. Pure.

    hidden: locations whose values and owners are not shown; None: no value is. root: schema of a value with secrets.
    """
    (keyword, expected, phrase), value = fault[:2]
    location = tuple(fault[:1:-1])
    shown, plain = (location, True) if root is True else _schema_veil(location, root, value is SCHEMA_MISSING)
    if isinstance(expected, list):
        expected, phrase = _schema_alternatives(expected, fault[2:], root)
    for place in hidden or ():
        plain = plain and place[: len(location)] != location
    if value is SCHEMA_MISSING:
        received = "nothing"
    elif any(location[: len(place)] == place for place in hidden or ()):
        received = "***"
    else:
        received = _schema_received(value, plain)
    message = phrase if phrase is None or isinstance(phrase, str) else phrase(location[-1], shown)
    if message is None:
        message = "expected " + expected + (", got " + received if hidden is not None else "")
    return Issue(shown, keyword, message, expected, received)


def _schema_veil(location: tuple[Any, ...], root: Any, missing: bool) -> tuple[tuple[Any, ...], bool]:
    """Return a location in a value that holds secrets as it may be shown, and whether what stands there may be. Pure.

    A key that the schema does not name is "***". A value is shown only where the schema names its place and is of one
    piece, without arrays and objects: anything else may be a secret, or hold one, out of the place it belongs to.
    """
    shown: list[Any] = []
    here = _schema_leaves([root], root)
    for key in location:
        inner = [leaf["properties"][key] for leaf in here if key in leaf.get("properties", ())]
        named = inner or isinstance(key, int) or (missing and len(shown) == len(location) - 1)
        shown.append(key if named else "***")
        if not inner:
            inner = [leaf.get(name) for leaf in here for name in ("items", "additionalProperties")]
            for leaf in here:
                inner += [*leaf.get("prefixItems", ()), *leaf.get("patternProperties", {}).values()]
        here = _schema_leaves(inner, root)
    kinds = here[0].get("type", "string" if here[0].keys() & {"enum", "const"} else "object") if len(here) == 1 else ()
    kinds = {kinds} if isinstance(kinds, str) else {*kinds}
    return tuple(shown), bool(kinds) and "***" not in shown and kinds.isdisjoint(("array", "object"))


def _schema_leaves(parts: Sequence[Any], root: Any) -> list[dict[str, Any]]:
    """Return what schemas of one value come to without $ref, allOf and alternatives, null left out. Pure."""
    leaves, queue = [], list(parts)
    for _ in range(SCHEMA_NAMES):
        part = _schema_resolve(queue.pop(), root) if queue else None
        if isinstance(part, dict) and part.get("type") != "null":
            queue += [inner for name in ("allOf", "anyOf", "oneOf") for inner in part.get(name, ())]
            if not part.keys() & {"allOf", "anyOf", "oneOf"} or part.keys() & {"type", "properties", "items"}:
                leaves.append(part)
    return leaves + [{}] * len(queue[:1])


def _schema_alternatives(faults: list[Any], keys: list[Any], root: Any) -> tuple[str, str | None]:
    """Return what alternatives at a place expected, and a message where "this or that" would not say it. Pure."""
    leaves: list[Issue] = []
    stack = faults[::-1]
    while stack and len(leaves) < SCHEMA_CHOICES:
        fault = stack.pop()
        if isinstance(fault[0][1], list):  # alternatives again: theirs, at the place of this fault
            stack += [inner + fault[2:] for inner in fault[0][1][::-1]]
        else:
            leaves.append(_schema_issue(fault + keys, None, root))
            leaves[-1].location = leaves[-1].location[len(keys) :]
    expected = _schema_either([leaf.expected for leaf in leaves])
    if all(not leaf.location and leaf.message == "expected " + leaf.expected for leaf in leaves):
        return expected, None
    return expected, "fits none of the alternatives (%s)" % _schema_either([str(leaf) for leaf in leaves])


def _schema_either(words: Sequence[str]) -> str:
    """Return "this, that or those"; that null would do too is left out. Pure."""
    words = [word for word in dict.fromkeys(words) if word != "null"] or ["null"]
    if len(words) > SCHEMA_MESSAGE_ISSUES:
        words = words[:SCHEMA_MESSAGE_ISSUES] + ["%d others" % (len(words) - SCHEMA_MESSAGE_ISSUES)]
    return ", ".join(words[:-1]) + " or " * (len(words) > 1) + words[-1]


def _schema_error(issues: Sequence[Issue], what: str = "Invalid input") -> Error:
    """Return the VALIDATION_ERROR of these issues: the first ones in its message, all of them in its details. Pure."""
    lines = [str(issue) for issue in issues[:SCHEMA_MESSAGE_ISSUES]]
    if len(issues) > len(lines):
        lines.append("and %d more" % (len(issues) - len(lines)))
    details = {"issues": [issue.to_wire() for issue in issues]}
    return Error("VALIDATION_ERROR", what + ": " + "; ".join(lines), details=details)


class Validator:
    """A JSON Schema, compiled once: ``nk.Validator({"type": "integer"}).is_valid(3)``.

    schema: an object or a boolean of draft 2020-12, or of 2019-09 or draft-07 where $schema says so; never changed.
    resources: what references to other documents mean, a mapping from absolute URIs to schemas or a function of the
    URI (None: unknown); nothing is ever fetched. assert_formats: whether `format` must hold.
    Values are JSON; subclasses count as their base, tuples as arrays. A bad pattern can take exponential time.

    Raises: RegistrationError for what is no schema: a keyword with a wrong value, a reference to nothing, a pattern
    that is none, a schema that applies to the same value without end.

    >>> Validator({"type": "integer", "minimum": 1}).issues(0)
    [Issue(expected at least 1, got the number 0)]
    """

    def __init__(
        self, schema: Any, *, resources: Mapping[str, Any] | Callable[[str], Any] | None = None,
        assert_formats: bool = False,
    ) -> None:  # fmt: skip
        self.schema = schema  #: as it was given
        self.steps = SCHEMA_STEPS  #: what one check may cost: members looked at and alternatives tried
        self._node = _SchemaCompiler(resources, assert_formats).compile(schema)

    def is_valid(self, value: Any) -> bool:
        """Tell whether a value fits. Pure."""
        return not self._find_faults(value)

    def issues(self, value: Any, *, hidden: Collection[tuple[Any, ...]] | None = None) -> list[Issue]:
        """Return why a value does not fit: at most 20 issues, none where it does. Pure.

        hidden: locations of secrets, also none where all are out of their places; no issue shows a value that stands
        there, nor, unless hidden is None, a key or value that may be a secret misplaced: only the kind of it.
        """
        faults = self._find_faults(value)
        root = True if hidden is None else self.schema
        return faults and [_schema_issue(fault, hidden or (), root) for fault in faults[:SCHEMA_ISSUES]]

    def check(self, value: Any) -> None:
        """Return where a value fits. Pure. Raises: VALIDATION_ERROR with all issues in its details."""
        issues = self.issues(value)
        if issues:
            raise _schema_error(issues)

    def _find_faults(self, value: Any) -> list[Any]:
        try:
            test = self._node[value.__class__]
            return (test(value, [self.steps]) or []) if test is not None else []
        except _JsonFault as fault:
            message = "holds " + fault.reason
        except RecursionError:
            message = "is nested too deeply to be checked"
        except TimeoutError:
            message = "takes too long to check against this schema"
        return [[("limits", "a value that can be checked", message), value]]


class _SchemaNode(dict):  # type: ignore[type-arg]
    """A schema under its dynamic anchors: class of a value -> test or None; see the head of this section."""

    __slots__ = "make schema base scope where tests each late joined inside marks whole".split()

    def __init__(self, make: Any, schema: Any, base: str, scope: tuple[Any, ...], where: tuple[Any, ...]) -> None:
        self.make: _SchemaCompiler = make  #: until the node is closed
        self.schema = schema  #: an object
        self.base = base  #: URI of the resource it belongs to
        self.scope = scope  #: (name, resource) of each dynamic anchor bound on the way here
        self.where = where  #: "#" or the reference that led here, and the keys from there, for messages
        self.tests: dict[Any, list[Any]] = {}  #: class -> its tests
        self.each: list[Any] = []  #: make the test of a class, when those of `inside` are made
        self.late: dict[Any, Any] = {}  #: class -> test that is asked when all others are passed
        self.joined: list[_SchemaNode] = []  #: nodes that must hold too (allOf, references)
        self.inside: list[_SchemaNode] = []  #: all nodes that are applied to the same value
        self.marks: list[Any] = []  #: add to a set what is evaluated; true where everything is
        self.whole: set[bool] = set()  #: unevaluated* leave nothing over: True for objects, False for arrays

    def __missing__(self, kind: type) -> Any:
        for base in kind.__mro__:
            base = list if base is tuple else base
            if base in SCHEMA_PLAIN:
                test, plain = self[base], SCHEMA_PLAIN[base]
                return test and (lambda value, state: test(plain(value), state))
        return _schema_refuse(("type", "a JSON value", None))

    def child(self, schema: Any, *keys: Any) -> _SchemaNode:
        """Return the node of a schema that stands in this one under these keys."""
        return self.make.node(schema, self.base, self.scope, self.where + keys)

    def within(self, schema: Any, *keys: Any) -> _SchemaNode:
        """The same for a schema that is applied to the same value."""
        child = self.child(schema, *keys)
        self.inside.append(child)
        return child

    def branches(self, keyword: str, value: list[Any]) -> list[_SchemaNode]:
        """The same for an array of them."""
        return [self.within(part, keyword, index) for index, part in enumerate(value)]

    def add(self, test: Any, *kinds: Any) -> None:
        """Let values of these classes pass a test."""
        for kind in kinds:
            self.tests.setdefault(kind, []).append(test)

    def check(self, kinds: Any, keyword: str, expected: str, good: Callable[[Any], Any]) -> None:
        """Refuse values of these classes that are not good."""
        rule = (keyword, expected, None)
        self.add(lambda value, state: None if good(value) else [[rule, value]], *kinds)

    def want(self, keyword: str, good: bool, wanted: str) -> None:
        """Refuse a keyword whose value is not what it takes."""
        if not good:
            got = _json_show(self.schema[keyword])
            raise self.make.fail(self.where, "%s takes %s, got %s" % (_json_show(keyword), wanted, got))

    def close(self) -> None:
        """Make the one test of each class; those of `inside` are made already."""
        fans = bool(self.each or self.joined)
        for kind in SCHEMA_ANY:
            if kind in self:  # refused by `type`
                continue
            tests, late = self.tests.get(kind, []), self.late.get(kind)
            if fans:
                others = [maker(kind) for maker in self.each] + [part[kind] for part in self.joined]
                tests = tests + [test for test in dict.fromkeys(others) if test is not None]
            first = self[kind] = _schema_all(tests, fans)
            if late:
                self[kind] = lambda value, state, a=first, b=late: (a and a(value, state)) or b(value, state)


def _schema_refuse(rule: Any) -> Callable[..., Any]:
    return lambda value, state: [[rule, value]]


def _schema_all(tests: Sequence[Callable[..., Any]], fans: bool) -> Callable[..., Any] | None:
    """Return a test that gathers the faults of all these. fans: they may fan out, and cost steps."""
    if len(tests) < 2:
        return tests[0] if tests else None
    parts = tuple(tests)

    def test(value: Any, state: Any) -> Any:
        if fans:
            _schema_spend(state, 2 * len(parts))
        faults = None
        for part in parts:
            found = part(value, state)
            if found is not None:
                faults = found if faults is None else faults + found
        return faults

    return test


def _schema_spend(state: list[int], steps: int) -> None:
    state[0] -= steps
    if state[0] < 0:
        raise TimeoutError  # for whoever began the check


def _schema_faults(node: _SchemaNode, value: Any, state: list[int]) -> Any:
    test = node[value.__class__]
    return test and test(value, state)


def _schema_mark(node: _SchemaNode, value: Any, state: list[int], seen: set[Any], own: bool = False) -> bool:
    """Add to `seen` what a node evaluates in a value it accepts; True: all. own: leave out its unevaluated*."""
    _schema_spend(state, 3)
    if not own and isinstance(value, dict) in node.whole:
        return True
    return any(mark(value, state, seen) for mark in node.marks) or any(
        _schema_mark(part, value, state, seen) for part in node.joined
    )


class _SchemaCompiler:
    """Builds the graph of one schema and knows its documents."""

    def __init__(self, resources: Any, assert_formats: bool) -> None:
        self.resources = resources  #: given by the caller
        self.assert_formats = assert_formats  #: whether `format` must hold whatever the dialect says
        self.documents: dict[str, tuple[Any, str]] = {}  #: URI -> schema and its own URI
        self.dialects: dict[str, tuple[int, Any]] = {}  #: resource -> draft (7, 19, 20) and vocabularies (None: all)
        self.anchors: dict[tuple[str, str], Any] = {}  #: (resource, name) -> schema
        self.dynamic: dict[str, dict[str, Any]] = {}  #: resource -> dynamic anchor ("" for $recursiveAnchor) -> schema
        self.nodes: dict[Any, _SchemaNode] = {}  #: by identity of the schema, base and scope
        self.made: list[_SchemaNode] = []  #: in the order in which they are filled
        self.always = _SchemaNode(None, {}, "", (), ())  #: the schema true
        self.always.close()
        self.never = self.make_never(("false", "nothing", "is not allowed"))  #: the schema false

    def compile(self, schema: Any) -> _SchemaNode:
        """Return the closed node of a whole schema. Raises: RegistrationError."""
        if isinstance(schema, dict):
            self.index(schema, "", (20, None))
        root = self.node(schema, "", (), ("#",))
        for count, node in enumerate(self.made):  # grows as it goes
            if count >= SCHEMA_NODES:
                raise RegistrationError("the schema is faulty: it has more than %d parts" % SCHEMA_NODES)
            self.fill(node)
        closed: dict[int, bool] = {}
        for node in self.made:
            self.close(node, closed)
            del node.make  # with all documents and anchors
        return root

    def close(self, start: _SchemaNode, closed: dict[int, bool]) -> None:
        """Close a node after those inside it, and refuse one that is inside itself."""
        stack = [] if id(start) in closed else [(start, iter(start.inside))]
        while stack:
            node, children = stack[-1]
            closed[id(node)] = False  # it is on its way
            child = next(children, None)
            if child is None:
                stack.pop()
                closed[id(node)] = True
                node.close()
            elif not closed.get(id(child), True):
                raise self.fail(child.where, "it applies to the same value without end")
            elif id(child) not in closed:
                stack.append((child, iter(child.inside)))

    def make_never(self, rule: Any) -> _SchemaNode:
        """Return a node that refuses every value by this rule."""
        node = _SchemaNode(None, {}, "", (), ())
        node.update(dict.fromkeys(SCHEMA_ANY, _schema_refuse(rule)))
        return node

    def fail(self, where: tuple[Any, ...], reason: str) -> RegistrationError:
        """Return the refusal of what stands at a place of the schema."""
        place = where[0] + _json_pointer(where[1:])
        return RegistrationError("the schema %sis faulty: %s" % ("" if place == "#" else "at %s " % place, reason))

    def index(self, schema: Any, base: str, dialect: tuple[int, Any]) -> None:
        """Note the resources and anchors of a document; they stand only where a keyword holds schemas."""
        self.documents.setdefault(base, (schema, base))
        self.dialects.setdefault(base, dialect)
        queue = [(schema, base, dialect)]
        seen = set()  # a schema built in Python may hold one object twice, or itself
        while queue:
            schema, base, dialect = queue.pop()
            if (id(schema), base) in seen:
                continue
            seen.add((id(schema), base))
            if isinstance(schema.get("$schema"), str):
                dialect = self.read_dialect(schema["$schema"], dialect)
            name = schema.get("$id")
            if isinstance(name, str) and not (dialect[0] == 7 and "$ref" in schema):
                name, _, anchor = name.partition("#")
                if name:
                    base = _format_join_uri(base, name)
                    self.documents[base] = (schema, base)
                if anchor:
                    self.anchors[base, anchor] = schema
            if self.documents[base][0] is schema:
                self.dialects[base] = dialect
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self.anchors[base, schema[keyword]] = schema
            name = "" if schema.get("$recursiveAnchor") is True else schema.get("$dynamicAnchor")
            if isinstance(name, str):
                self.dynamic.setdefault(base, {}).setdefault(name, schema)
            for keyword, value in schema.items():
                row = SCHEMA_KEYWORDS.get(keyword)
                holds = row and SCHEMA_TAKES[row[3]][1]
                if holds and isinstance(value, (dict, list)):
                    parts = value if isinstance(value, list) else value.values() if holds == "map" else (value,)
                    queue.extend((part, base, dialect) for part in parts if isinstance(part, dict))

    def read_dialect(self, uri: str, outer: tuple[int, Any]) -> tuple[int, Any]:
        """Return draft and vocabularies that a value of $schema asks for; one that nobody knows changes nothing."""
        uri = uri.rstrip("#")
        if uri in SCHEMA_DRAFTS:
            return SCHEMA_DRAFTS[uri], None
        document = self.load(uri)
        declared = document[0].get("$vocabulary") if document and isinstance(document[0], dict) else None
        if not isinstance(declared, dict):
            return outer
        names, draft = set(), 20
        for name, needed in declared.items():
            head, _, tail = str(name).rpartition("vocab/")
            if head in (SCHEMA_META_BASE, "https://json-schema.org/draft/2019-09/"):
                names.add(tail)
                draft = 20 if head == SCHEMA_META_BASE else 19
            elif needed:
                raise RegistrationError("the schema is faulty: it needs the vocabulary " + _json_show(name))
        return draft, frozenset(names)

    def load(self, uri: str) -> tuple[Any, str] | None:
        """Return the schema of a URI and its own URI, None where nobody knows it."""
        if uri in self.documents:
            return self.documents[uri]
        schema, given = None, self.resources or {}
        try:
            schema = given(uri) if callable(given) else given.get(uri)
        except LookupError:
            pass
        except Exception as fault:  # the caller's own function; whatever it raises, the reference leads nowhere
            reason = "looking up %s failed with %s" % (_json_show(uri), type(fault).__name__)
            raise RegistrationError("the schema is faulty: " + reason) from fault
        if schema is None and uri.startswith(SCHEMA_META_BASE):
            schema = _schema_metaschema(uri[len(SCHEMA_META_BASE) :])
        if schema is None:
            return None
        self.documents[uri] = (schema, uri)
        if isinstance(schema, dict):
            self.index(schema, uri, (20, None))
            self.documents[uri] = (schema, self.enter(schema, uri))
        return self.documents[uri]

    def find(self, reference: str, base: str, where: tuple[Any, ...]) -> tuple[Any, str]:
        """Return the schema that a reference names and the URI of its resource. Raises: RegistrationError."""
        uri, _, fragment = reference.partition("#")
        document = self.load(_format_join_uri(base, uri) if uri else base)
        if document is None:
            raise self.fail(where, "nothing is known of %s; give it in resources" % _json_show(reference))
        schema, base = document
        fragment = _format_unquote(fragment)
        if fragment[:1] == "/":
            for key in fragment[1:].split("/"):
                schema = _schema_step(schema, key)
                base = self.enter(schema, base)
        elif fragment:
            schema = self.anchors.get((base, fragment), SCHEMA_MISSING)
        if schema is SCHEMA_MISSING:
            raise self.fail(where, "%s refers to nothing" % _json_show(reference))
        return schema, base

    def enter(self, schema: Any, base: str) -> str:
        """Return the URI of the resource that a schema belongs to: its own, or that of what it stands in."""
        name = schema.get("$id") if isinstance(schema, dict) else None
        name = name.partition("#")[0] if isinstance(name, str) else ""
        if not name or (self.dialects[base][0] == 7 and "$ref" in schema):
            return base
        uri = _format_join_uri(base, name)
        if uri not in self.dialects:
            self.index(schema, base, self.dialects[base])
        return uri

    def node(self, schema: Any, base: str, scope: tuple[Any, ...], where: Any, settled: bool = False) -> _SchemaNode:
        """Return the node of a schema, which will be filled later. settled: `base` is the schema's own resource."""
        followed = set()
        while True:
            if schema is True or schema is False:
                return self.always if schema else self.never
            if not isinstance(schema, dict):
                raise self.fail(where, "a schema is an object or a boolean, got " + _json_show(schema))
            if len(where) > SCHEMA_DEPTH_LEVELS:
                raise self.fail(where[:2], "it is nested too deeply")
            base = base if settled else self.enter(schema, base)
            if base in self.dynamic:
                bound = [name for name, _ in scope]
                scope += tuple((name, base) for name in self.dynamic[base] if name not in bound)
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not SCHEMA_SILENT.issuperset(schema):
                break
            if id(schema) in followed:
                raise self.fail(where, "%s refers to itself" % _json_show(reference))
            followed.add(id(schema))
            schema, base = self.find(reference, base, where)
            where, settled = (reference,), True
        node = self.nodes.get((id(schema), base, scope))
        if node is None:
            node = self.nodes[id(schema), base, scope] = _SchemaNode(self, schema, base, scope, where)
            self.made.append(node)
        return node

    def fill(self, node: _SchemaNode) -> None:
        """Give a node the tests of its keywords."""
        draft, vocabularies = self.dialects[node.base]
        alone = draft == 7 and "$ref" in node.schema
        rows = []
        for keyword, value in node.schema.items():
            row = SCHEMA_KEYWORDS.get(keyword)
            if row is None or row[2] > draft or (alone and keyword != "$ref"):
                continue
            if vocabularies is None or row[1] in vocabularies or row[1] == "core":
                if not isinstance(value, SCHEMA_TAKES[row[3]][0]) or (not value and "non-" in row[3]):
                    node.want(keyword, False, row[3])
                rows.append((row[0], keyword, value))
        for function, keyword, value in rows:  # when what they read of each other is what they take
            function(node, keyword, value)


def _schema_step(value: Any, key: str) -> Any:
    """Go one step of a JSON pointer; SCHEMA_MISSING where there is none. Pure."""
    key = key.replace("~1", "/").replace("~0", "~")
    if isinstance(value, dict):
        return value.get(key, SCHEMA_MISSING)
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(value):
        return value[int(key)]
    return SCHEMA_MISSING


def _schema_resolve(schema: Any, root: Any) -> Any:
    """Return a schema with its local $ref followed, what stands beside the $ref laid over it; {} for a loop. Pure."""
    for _ in range(SCHEMA_HOPS):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str) or schema["$ref"][:1] != "#":
            return schema
        start, *keys = _format_unquote(schema["$ref"][1:]).split("/")
        target = SCHEMA_MISSING if start else root
        for key in keys:
            target = _schema_step(target, key)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if target is SCHEMA_MISSING:
            return beside
        schema = {**target, **beside} if beside and isinstance(target, dict) else target
    return {}


# Keywords: each function takes the node to add to, the keyword and its value.


def _schema_note(node: _SchemaNode, keyword: str, value: Any) -> None:
    """Names, read by the index; $defs, compiled when referred to; then, else, additionalItems, read by others."""
    if SCHEMA_KEYWORDS[keyword][3] == "a schema":
        node.child(value, keyword)


def _schema_reference(node: _SchemaNode, keyword: str, value: Any) -> None:
    """$ref, $dynamicRef (8.2.3.2) and $recursiveRef: of resources that bind a dynamic anchor the outermost wins."""
    schema, base = node.make.find(value, node.base, node.where)
    name = value.partition("#")[2] if keyword == "$dynamicRef" else ""
    if keyword != "$ref" and node.make.dynamic.get(base, {}).get(name) is schema:
        base = dict(node.scope).get(name, base)
        schema = node.make.dynamic[base][name]
    child = node.make.node(schema, base, node.scope, (value,), True)
    node.inside.append(child)
    node.joined.append(child)


def _schema_all_of(node: _SchemaNode, keyword: str, value: Any) -> None:
    node.joined += node.branches(keyword, value)


def _schema_union(node: _SchemaNode, keyword: str, value: Any) -> None:
    """anyOf, oneOf."""
    parts = node.branches(keyword, value)
    single = keyword == "oneOf"
    expected = "exactly one of %d alternatives" % len(parts)
    rule = (keyword, expected, "fits more than one of the alternatives, but only one may fit")

    def each(kind: Any) -> Any:
        """Return the test of a class: none where an alternative takes every value of it."""
        tests = [part[kind] for part in parts]
        if None in tests and not single:
            return None

        def test(value: Any, state: Any) -> Any:
            _schema_spend(state, len(tests))
            branches = []
            for inner in tests:
                found = None if inner is None else inner(value, state)
                if found is not None:
                    branches.append(found)
                elif not single:
                    return None
            if len(branches) == len(tests):
                _schema_spend(state, SCHEMA_UNION_STEPS * len(tests))  # to compare faults costs more than to find them
                return _schema_furthest(keyword, branches, value)
            return [[rule, value]] if len(branches) < len(tests) - 1 else None

        return test

    node.each.append(each)
    node.marks.append(lambda value, state, seen: any(
        not _schema_faults(part, value, state) and _schema_mark(part, value, state, seen) for part in parts
    ))  # fmt: skip


def _schema_furthest(keyword: str, branches: list[list[Any]], value: Any) -> list[Any]:
    """Return the faults of the alternative that got furthest; one for all where several got equally far. Pure."""
    ranks = [_schema_rank(branch) for branch in branches]
    best = max(rank[0] for rank in ranks)
    nearest = [(branch, first) for branch, (rank, first) in zip(branches, ranks) if rank == best]
    if len(nearest) == 1:
        return nearest[0][0]
    firsts = [first for _, first in nearest]
    if best[0] == 1 and all(first[2:] == firsts[0][2:] for first in firsts):  # all have the same tag
        return [[(keyword, [first[:2] for first in firsts], None), *firsts[0][1:]]]
    return [[(keyword, firsts, None), value]]


def _schema_rank(branch: list[Any]) -> tuple[tuple[int, int, int], list[Any]]:
    """Tell how far an alternative got: kind of the value, its tag (const or enum of a member), depth, few faults.

    And its decisive fault: that of the kind or the tag, else the first.
    """
    depth, tag = 0, None
    for fault in branch:
        (keyword, expected, _), steps = fault[0], len(fault)
        while isinstance(expected, list):  # alternatives again
            steps += len(expected[0]) - 2
            keyword, expected, _ = expected[0][0]
        if steps == 2 and keyword in ("type", "false", "const", "enum"):
            return (0, 0, 0), fault
        if steps == 3 and keyword in ("const", "enum"):
            tag = tag or fault
        depth = max(depth, steps)
    return ((2, depth, -len(branch)), branch[0]) if tag is None else ((1, 0, 0), tag)


def _schema_not(node: _SchemaNode, keyword: str, value: Any) -> None:
    part = node.within(value, keyword)
    rule = (keyword, "a value that the schema does not rule out", "is ruled out by the schema")
    node.each.append(lambda kind: lambda value, state: None if _schema_faults(part, value, state) else [[rule, value]])


def _schema_if(node: _SchemaNode, keyword: str, value: Any) -> None:
    """if, then, else (10.2.2)."""
    when = node.within(value, keyword)
    then, other = (node.within(node.schema.get(name, True), name) for name in ("then", "else"))

    def test(value: Any, state: Any) -> Any:
        _schema_spend(state, 1)
        return _schema_faults(other if _schema_faults(when, value, state) else then, value, state)

    def mark(value: Any, state: Any, seen: Any) -> bool:
        if _schema_faults(when, value, state):
            return _schema_mark(other, value, state, seen)
        return _schema_mark(when, value, state, seen) or _schema_mark(then, value, state, seen)

    node.each.append(lambda kind: test)
    node.marks.append(mark)


def _schema_type(node: _SchemaNode, keyword: str, value: Any) -> None:
    names = value if isinstance(value, list) else [value]
    good = bool(names) and all(isinstance(name, str) and name in SCHEMA_TYPES for name in names)
    node.want(keyword, good, "one or several of " + ", ".join(SCHEMA_TYPES))
    expected = _schema_either([SCHEMA_TYPES[name][0] for name in names])
    kinds = [kind for name in names for kind in SCHEMA_TYPES[name][1]]
    node.update(dict.fromkeys(set(SCHEMA_ANY) - set(kinds), _schema_refuse((keyword, expected, None))))
    if "integer" in names and "number" not in names:
        node.check((float,), keyword, expected, float.is_integer)


def _schema_enum(node: _SchemaNode, keyword: str, value: Any) -> None:
    """enum and const: JSON equality, so that true is not 1; a text costs one look-up."""
    values = value if keyword == "enum" else [value]
    try:
        keys = frozenset(map(_json_key, values))
    except _JsonFault as fault:
        raise node.make.fail(node.where, "%s holds %s" % (_json_show(keyword), fault.reason)) from None
    shown = [_schema_show(value) for value in values[:SCHEMA_CHOICES]]
    if len(values) > len(shown):
        shown.append("%d others" % (len(values) - len(shown)))
    expected = "one of " * (len(shown) > 1) + (", ".join(shown) or "nothing")
    plain = all(isinstance(value, SCHEMA_ONE_PIECE) for value in values)  # then no array or object needs a key
    node.check((str,), keyword, expected, keys.__contains__)
    node.check(SCHEMA_NO_TEXT, keyword, expected, lambda value: _json_key(value) in keys)
    node.check((list, dict), keyword, expected, lambda value: not plain and _json_key(value) in keys)


def _schema_is_number(value: Any) -> bool:
    return _json_kind(value) in ("integer", "number") and value - value == 0


def _schema_bound(node: _SchemaNode, keyword: str, limit: Any) -> None:
    """minimum, maximum, exclusiveMinimum, exclusiveMaximum."""
    node.want(keyword, _schema_is_number(limit), "a number")
    words, good = {
        "minimum": ("at least ", lambda value: value >= limit),
        "maximum": ("at most ", lambda value: value <= limit),
        "exclusiveMinimum": ("more than ", lambda value: value > limit),
        "exclusiveMaximum": ("less than ", lambda value: value < limit),
    }[keyword]
    node.check((int, float), keyword, words + _schema_show(limit), good)


def _schema_multiple_of(node: _SchemaNode, keyword: str, unit: Any) -> None:
    """multipleOf by the decimals that the numbers are written with: 0.0075 is a multiple of 0.0001."""
    node.want(keyword, _schema_is_number(unit) and unit > 0, "a number above 0")
    digits, exponent = _schema_decimal(unit)

    def good(value: Any) -> Any:
        if value - value != 0:
            return False
        mantissa, power = _schema_decimal(value)
        shift = power - exponent
        return mantissa * 10 ** max(shift, 0) % (digits * 10 ** max(-shift, 0)) == 0

    expected = "a multiple of " + _schema_show(unit)
    node.check((int,), keyword, expected, good if exponent else lambda value: value % digits == 0)
    node.check((float,), keyword, expected, good)


def _schema_decimal(number: Any) -> tuple[int, int]:
    """Return (m, e) with number = m * 10**e exactly as it is written. Pure."""
    if isinstance(number, int):
        return number, 0
    digits, _, exponent = float.__repr__(number).partition("e")
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction), int(exponent or 0) - len(fraction)


def _schema_count(node: _SchemaNode, keyword: str, value: Any) -> None:
    """minContains, maxContains: read by `contains`."""
    good = _schema_is_number(value) and value >= 0 and value == int(value)
    node.want(keyword, good, "a whole number of at least 0")


def _schema_size(node: _SchemaNode, keyword: str, value: Any) -> None:
    """minLength, minItems, minProperties, maxLength, maxItems, maxProperties."""
    _schema_count(node, keyword, value)
    kind, unit = {"Length": (str, "character"), "Items": (list, "item"), "Properties": (dict, "field")}[keyword[3:]]
    unit = " %d %s" % (value, unit if value == 1 else unit + "s")
    least = keyword[:3] == "min"
    good = (lambda item: len(item) >= value) if least else (lambda item: len(item) <= value)
    node.check((kind,), keyword, ("at least" if least else "at most") + unit, good)


def _schema_pattern(node: _SchemaNode, keyword: str, value: Any) -> None:
    search = _schema_search(node, keyword, value)
    shown = value if value.isprintable() and len(value) <= SCHEMA_NAME_CHARACTERS else _json_show(value)
    node.check((str,), keyword, "a string that matches " + shown, search)


def _schema_search(node: _SchemaNode, keyword: str, source: str) -> Any:
    try:
        return _format_pattern(source).search
    except ValueError as fault:
        reason = "%s holds %s, which is no pattern: %s" % (_json_show(keyword), _json_show(source), fault)
        raise node.make.fail(node.where, reason) from None


def _schema_format(node: _SchemaNode, keyword: str, value: Any) -> None:
    vocabularies = node.make.dialects[node.base][1] or ()
    asked = node.make.assert_formats or value in FORMAT_OWN or "format-assertion" in vocabularies
    found = _format_find(value) if asked else None
    if found is not None:
        node.check((str,), keyword, *found)
        if value == "regex":  # costs more than all other checks
            node.add(lambda text, state: _schema_spend(state, SCHEMA_REGEX_STEPS * len(text)), str)


def _schema_gather(faults: list[Any] | None, found: list[Any], key: Any) -> list[Any]:
    """Add the faults of a member to those of its owner, as long as they are few."""
    for fault in found:
        fault.append(key)
    if faults is None:
        return found
    return faults if len(faults) >= SCHEMA_ISSUES else faults + found


def _schema_walk(members: Iterable[tuple[Any, _SchemaNode, Any]], state: list[int]) -> list[Any] | None:
    """Return the faults of members (key, node, value) with their keys: of all, as long as they are few."""
    faults = None
    for key, part, item in members:
        inner = part[item.__class__]
        if inner is not None:
            found = inner(item, state)
            if found is not None:
                faults = _schema_gather(faults, found, key)
    return faults


def _schema_test_members(find: Callable[..., _SchemaNode], other: _SchemaNode, pairs: Callable[[Any], Any]) -> Any:
    """Return the test of an object or array by the keys of its members: the one place where every step counts."""

    def test(value: Any, state: Any) -> Any:
        left = state[0] - 1 - len(value) // 8  # a member is cheap, going into a value is not
        if left < 0:
            raise TimeoutError
        state[0] = left
        faults = None
        for key, item in pairs(value):  # written out, since most of the time goes here
            inner = find(key, other)[item.__class__]
            if inner is not None:
                found = inner(item, state)
                if found is not None:
                    faults = _schema_gather(faults, found, key)
        return faults

    return test


def _schema_items(node: _SchemaNode, keyword: str, value: Any) -> None:
    """prefixItems and items; before 2020-12, and wherever `items` is an array, items and additionalItems."""
    schema = node.schema
    first, rest = "prefixItems", "items"
    if isinstance(schema.get("items"), list):
        first, rest = "items", "additionalItems"
    elif first not in schema or node.make.dialects[node.base][0] < 20:
        first = ""
    if keyword == rest and first:
        return  # done by the other keyword
    prefix = [node.child(part, first, index) for index, part in enumerate(schema.get(first, ()))]
    other = node.child(schema.get(rest, True), rest)
    if other is node.make.never:
        other = node.make.make_never((rest, "at most %d items" % len(prefix), "is one item too many"))

    def mark(value: Any, state: Any, seen: Any) -> bool:
        if not isinstance(value, dict):
            seen.update(range(min(len(prefix), len(value))))
        return rest in schema and not isinstance(value, dict)

    if prefix or other is not node.make.always:
        node.add(_schema_test_members(dict(enumerate(prefix)).get, other, enumerate), list)
    node.marks.append(mark)


def _schema_contains(node: _SchemaNode, keyword: str, value: Any) -> None:
    """contains, minContains, maxContains (10.3.1.3)."""
    part = node.child(value, keyword)
    draft = node.make.dialects[node.base][0]
    limits: Any = node.schema if draft >= 19 else {}
    low, high = limits.get("minContains", 1), limits.get("maxContains")

    def test(value: Any, state: Any) -> Any:
        _schema_spend(state, 12 + len(value) // 2)
        count = sum([not _schema_faults(part, item, state) for item in value])
        if count >= low and (high is None or count <= high):
            return None
        name, words = ("contains", "at least %d" % low) if count < low else ("maxContains", "at most %d" % high)
        return [[(name, words + " matching items", "has %d matching items, but needs %s" % (count, words)), value]]

    def mark(value: Any, state: Any, seen: Any) -> bool:
        if not isinstance(value, dict) and draft >= 20:
            seen.update([index for index, item in enumerate(value) if not _schema_faults(part, item, state)])
        return False

    node.add(test, list)
    node.marks.append(mark)


def _schema_unique_items(node: _SchemaNode, keyword: str, value: Any) -> None:
    def test(value: Any, state: Any) -> Any:
        _schema_spend(state, 1 + len(value) // 8)
        keys = list(map(_json_key, value))
        if len(set(keys)) == len(keys):
            return None
        places: dict[Any, int] = {}
        pair = next((places[key], at) for at, key in enumerate(keys) if places.setdefault(key, at) != at)
        return [[(keyword, "items that all differ", "has equal items at %d and %d, but all must differ" % pair), value]]

    if value:
        node.add(test, list)


def _schema_members(node: _SchemaNode, keyword: str, value: Any) -> None:
    """properties, patternProperties, additionalProperties (10.3.2): one walk over the members of a value."""
    schema = node.schema
    if keyword != next(name for name in schema if name in SCHEMA_MEMBERS):
        return  # done by the first of them
    members, patterned = (schema.get(name, {}) for name in SCHEMA_MEMBERS[:2])
    parts = {name: node.child(part, "properties", name) for name, part in members.items()}
    patterns = [
        (_schema_search(node, "patternProperties", source), node.child(part, "patternProperties", source))
        for source, part in patterned.items()
    ]
    other = node.child(schema.get("additionalProperties", True), "additionalProperties")
    if other is node.make.never:
        other = node.make.make_never(_schema_stranger("additionalProperties", members))

    def find(key: Any) -> list[_SchemaNode]:
        nodes = [part for search, part in patterns if isinstance(key, str) and search(key)]
        return nodes + ([parts[key]] if key in parts else [])

    def test(value: Any, state: Any) -> Any:
        _schema_spend(state, 2 + 2 * len(value) * len(patterns))
        members = ((key, part, item) for key, item in value.items() for part in find(key) or [other])
        return _schema_walk(members, state)

    def mark(value: Any, state: Any, seen: Any) -> bool:
        if isinstance(value, dict):
            seen.update(filter(find, value))
        return "additionalProperties" in schema and isinstance(value, dict)

    if patterns:
        node.add(test, dict)
    elif parts or other is not node.make.always:
        node.add(_schema_test_members(parts.get, other, dict.items), dict)
    node.marks.append(mark)


def _schema_stranger(keyword: str, names: Mapping[str, Any]) -> Any:
    """Return the rule for members that are not declared; names: those that are."""

    def phrase(key: Any, location: tuple[Any, ...]) -> str:
        """key: as it was given; location: as it is shown."""
        from difflib import get_close_matches

        owner = ".".join(map(_schema_name, location[:-1])) or "this input"
        known = [name for name in map(str, list(names)[:SCHEMA_NAMES]) if len(name) <= SCHEMA_NAME_CHARACTERS]
        near = get_close_matches(str(key)[:SCHEMA_NAME_CHARACTERS], known, 1)
        return "is not a field of " + owner + ("; did you mean %s?" % _json_show(near[0]) if near else "")

    return keyword, "no field of this name", phrase


def _schema_unevaluated(node: _SchemaNode, keyword: str, value: Any) -> None:
    """unevaluatedItems, unevaluatedProperties (11): asked where all else is passed."""
    objects = keyword == "unevaluatedProperties"
    part = node.child(value, keyword)
    if part is node.make.never and objects:
        part = node.make.make_never(_schema_stranger(keyword, node.schema.get("properties", {})))

    def test(value: Any, state: Any) -> Any:
        seen: set[Any] = set()
        if _schema_mark(node, value, state, seen, own=True):
            return None
        keys = value if objects else range(len(value))
        return _schema_walk(((key, part, value[key]) for key in keys if key not in seen), state)

    node.late[dict if objects else list] = test
    node.whole.add(objects)


def _schema_required(node: _SchemaNode, keyword: str, names: Any, when: Any = None) -> None:
    """Require these members, where `when` is given only beside that one."""
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    node.want(keyword, good, "an array of names" if when is None else "an object of arrays of names")
    wanted = frozenset(names)
    rule = (keyword, "a value", "is required" + ("" if when is None else " when %s is given" % _schema_name(when)))

    def test(value: Any, state: Any) -> Any:
        if wanted <= value.keys() or (when is not None and when not in value):
            return None
        return [[rule, SCHEMA_MISSING, name] for name in dict.fromkeys(names) if name not in value][:SCHEMA_ISSUES]

    if names:
        node.add(test, dict)


def _schema_dependencies(node: _SchemaNode, keyword: str, value: Any) -> None:
    """dependentRequired, dependentSchemas, and the older dependencies, which may hold either."""
    for name, needed in value.items():
        if keyword == "dependentRequired" or (keyword == "dependencies" and isinstance(needed, list)):
            _schema_required(node, keyword, needed, name)
        else:
            _schema_add_dependent_schema(node, name, node.within(needed, keyword, name))


def _schema_add_dependent_schema(node: _SchemaNode, name: str, part: _SchemaNode) -> None:
    def test(value: Any, state: Any) -> Any:
        return _schema_faults(part, value, state) if name in value else None

    node.each.append(lambda kind: test if kind is dict else None)
    node.marks.append(lambda value, *rest: (
        isinstance(value, dict) and name in value and _schema_mark(part, value, *rest)
    ))  # fmt: skip


def _schema_property_names(node: _SchemaNode, keyword: str, value: Any) -> None:
    part = node.child(value, keyword)

    def test(value: Any, state: Any) -> Any:
        _schema_spend(state, 1 + len(value) // 8)
        faults: list[Any] = []
        for key in value:
            found = _schema_faults(part, key, state)
            if found and len(faults) < SCHEMA_ISSUES:
                message = "is no good name: " + _schema_issue(found[0], None).message
                faults.append([(keyword, "a name that fits", message), value[key], key])
        return faults or None

    node.add(test, dict)


#: keyword -> function, vocabulary, the draft that brought it, and what it takes ("": its function asks)
SCHEMA_KEYWORDS = {
    "$anchor": (_schema_note, "core", 19, "a string"),
    "$defs": (_schema_note, "core", 19, "an object of schemas"),
    "$dynamicAnchor": (_schema_note, "core", 20, "a string"),
    "$dynamicRef": (_schema_reference, "core", 20, "a URI reference"),
    "$id": (_schema_note, "core", 7, "a string"),
    "$recursiveRef": (_schema_reference, "core", 19, "a URI reference"),
    "$ref": (_schema_reference, "core", 7, "a URI reference"),
    "$schema": (_schema_note, "core", 7, "a string"),
    "additionalItems": (_schema_note, "applicator", 7, "a schema"),
    "additionalProperties": (_schema_members, "applicator", 7, "a schema"),
    "allOf": (_schema_all_of, "applicator", 7, "a non-empty array of schemas"),
    "anyOf": (_schema_union, "applicator", 7, "a non-empty array of schemas"),
    "const": (_schema_enum, "validation", 7, ""),
    "contains": (_schema_contains, "applicator", 7, "a schema"),
    "definitions": (_schema_note, "core", 7, "an object of schemas"),
    "dependencies": (_schema_dependencies, "applicator", 7, "an object"),
    "dependentRequired": (_schema_dependencies, "validation", 19, "an object"),
    "dependentSchemas": (_schema_dependencies, "applicator", 19, "an object"),
    "else": (_schema_note, "applicator", 7, "a schema"),
    "enum": (_schema_enum, "validation", 7, "an array"),
    "exclusiveMaximum": (_schema_bound, "validation", 7, ""),
    "exclusiveMinimum": (_schema_bound, "validation", 7, ""),
    "format": (_schema_format, "core", 7, "the name of a format"),
    "if": (_schema_if, "applicator", 7, "a schema"),
    "items": (_schema_items, "applicator", 7, "a schema"),
    "maxContains": (_schema_count, "validation", 19, ""),
    "maxItems": (_schema_size, "validation", 7, ""),
    "maxLength": (_schema_size, "validation", 7, ""),
    "maxProperties": (_schema_size, "validation", 7, ""),
    "maximum": (_schema_bound, "validation", 7, ""),
    "minContains": (_schema_count, "validation", 19, ""),
    "minItems": (_schema_size, "validation", 7, ""),
    "minLength": (_schema_size, "validation", 7, ""),
    "minProperties": (_schema_size, "validation", 7, ""),
    "minimum": (_schema_bound, "validation", 7, ""),
    "multipleOf": (_schema_multiple_of, "validation", 7, ""),
    "not": (_schema_not, "applicator", 7, "a schema"),
    "oneOf": (_schema_union, "applicator", 7, "a non-empty array of schemas"),
    "pattern": (_schema_pattern, "validation", 7, "a pattern"),
    "patternProperties": (_schema_members, "applicator", 7, "an object of schemas"),
    "prefixItems": (_schema_items, "applicator", 20, "an array of schemas"),
    "properties": (_schema_members, "applicator", 7, "an object of schemas"),
    "propertyNames": (_schema_property_names, "applicator", 7, "a schema"),
    "required": (_schema_required, "validation", 7, ""),
    "then": (_schema_note, "applicator", 7, "a schema"),
    "type": (_schema_type, "validation", 7, ""),
    "unevaluatedItems": (_schema_unevaluated, "unevaluated", 19, "a schema"),
    "unevaluatedProperties": (_schema_unevaluated, "unevaluated", 19, "a schema"),
    "uniqueItems": (_schema_unique_items, "validation", 7, "true or false"),
}
SCHEMA_META_BASE = "https://json-schema.org/draft/2020-12/"
#: documents of the 2020-12 metaschema: name, then keyword:code of the schema that its values must fit
SCHEMA_META = (
    "meta/core $id:I $schema:Y $ref:R $anchor:C $dynamicRef:R $dynamicAnchor:C $vocabulary:V $comment:T $defs:M",
    "meta/applicator prefixItems:A items:S contains:S additionalProperties:S properties:M patternProperties:P"
    " dependentSchemas:M propertyNames:S if:S then:S else:S allOf:A anyOf:A oneOf:A not:S",
    "meta/unevaluated unevaluatedItems:S unevaluatedProperties:S",
    "meta/validation type:K const:D enum:L multipleOf:X maximum:F exclusiveMaximum:F minimum:F exclusiveMinimum:F"
    " maxLength:N minLength:N pattern:E maxItems:N minItems:N uniqueItems:B maxContains:N minContains:N maxProperties:N"
    " minProperties:N required:U dependentRequired:Q",
    "meta/meta-data title:T description:T default:D deprecated:B readOnly:B writeOnly:B examples:L",
    "meta/format-annotation format:T",
    "meta/content contentEncoding:T contentMediaType:T contentSchema:S",
    "schema definitions:M dependencies:W $recursiveAnchor:C $recursiveRef:R",
    "meta/format-assertion format:T",
)


#: the schemas of SCHEMA_META by their codes, and the names that some have in $defs
SCHEMA_META_VALUES = """{
"A": {"type": "array", "minItems": 1, "items": {"$dynamicRef": "#meta"}},
"C": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"},
"B": {"type": "boolean"}, "D": true, "F": {"type": "number"}, "N": {"type": "integer", "minimum": 0},
"E": {"type": "string", "format": "regex"},
"I": {"type": "string", "format": "uri-reference", "pattern": "^[^#]*#?$"},
"K": {"anyOf": [{"$ref": "#/$defs/simpleTypes"},
    {"type": "array", "items": {"$ref": "#/$defs/simpleTypes"}, "minItems": 1, "uniqueItems": true}]},
"L": {"type": "array", "items": true},
"M": {"type": "object", "additionalProperties": {"$dynamicRef": "#meta"}},
"O": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
"P": {"type": "object", "additionalProperties": {"$dynamicRef": "#meta"}, "propertyNames": {"format": "regex"}},
"Q": {"type": "object", "additionalProperties": {"$ref": "#/$defs/stringArray"}},
"R": {"type": "string", "format": "uri-reference"},
"S": {"$dynamicRef": "#meta"}, "T": {"type": "string"}, "X": {"type": "number", "exclusiveMinimum": 0},
"U": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
"V": {"type": "object", "propertyNames": {"$ref": "#/$defs/uriString"}, "additionalProperties": {"type": "boolean"}},
"W": {"type": "object", "additionalProperties": {"anyOf": [{"$dynamicRef": "#meta"}, {"$ref": "#/$defs/stringArray"}]}},
"Y": {"type": "string", "format": "uri"}
}"""
SCHEMA_META_PARTS = (
    "anchorString:C nonNegativeInteger:N nonNegativeIntegerDefault0:N schemaArray:A simpleTypes:O stringArray:U"
    " uriReferenceString:R uriString:Y"
)


def _schema_metaschema(name: str) -> Any:
    """Return a document of the 2020-12 metaschema by the end of its URI, rebuilt from SCHEMA_META, else None. Pure."""
    rows = {row.split(" ", 1)[0]: row.split(" ")[1:] for row in SCHEMA_META}
    if name not in rows:
        return None
    codes = _json_loads(SCHEMA_META_VALUES)
    parts, properties = (
        {word: codes[code] for word, code in (entry.split(":") for entry in entries)}
        for entries in (SCHEMA_META_PARTS.split(), rows[name])
    )
    document = {"$schema": SCHEMA_META_BASE + "schema", "$id": SCHEMA_META_BASE + name, "$dynamicAnchor": "meta"}
    everything = [{"$ref": row} for row in list(rows)[:7]] if name == "schema" else [True]
    return {**document, "allOf": everything, "type": ["object", "boolean"], "properties": properties, "$defs": parts}
# endregion SCHEMA


# region TYPES -- Arg, Opt, Field, Shape; text -> JSON values; JSON <-> typed Python values
# needs: LIMITS ERRORS JSON FORMAT SCHEMA
# One annotation becomes one Shape: a JSON Schema (objects are closed, at every depth), a reader from valid JSON to
# Python, a strict writer back, and the places of paths and secrets. What no annotation names is never imported.
#
#     annotation              JSON                       in Python
#     str int float bool None the same                   3.0 for an int arrives as 3, 3 for a float as 3.0
#     Literal, Enum           enum of the values         the value, the member
#     list set tuple ...      array                      the container; items of sets are unique
#     dict[str, T]            object                     dict
#     dataclass NamedTuple    object                     an instance, made by its constructor
#     TypedDict               object                     dict
#     date datetime time      ISO 8601 text              an offset is kept where there is one
#     Decimal                 decimal text or a number   exact; written as text
#     UUID Path bytes         text (bytes: base64)       the object
#     A | B                   anyOf                      of the first branch that takes it, the narrowest first
#
# Typed text (argv, environment, standard input) is read by _types_read_text before there is a call, value by value.

TYPES_ABSENT = _ErrorsMark("(absent)")  # what stands where there is no default: None is one
TYPES_FORMED = 2  # rank of dates, paths and other text that Python has a class for
TYPES_KINDS = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
#: unions that need no reader: what JSON holds is what Python gets
TYPES_NUMBERS = ([int, float], [float, int])
#: kind -> what a message calls it
TYPES_WORDS = {
    "boolean": "true or false", "integer": "a whole number", "number": "a number", "array": "a JSON array",
    "object": "a JSON object", "null": "null, written :=null",
}
TYPES_BOOLEANS = {
    "true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False,
}
#: format -> what its text is called. iso-time and iso-date-time are those of RFC 3339 with offset and seconds optional.
TYPES_CLOCKS = {
    "date": "an ISO 8601 date", "date-time": "an ISO 8601 date and time", "iso-date-time": "an ISO 8601 date and time",
    "time": "an ISO 8601 time", "iso-time": "an ISO 8601 time", "decimal": "a decimal number",
}
#: the measure of a type -> what follows "min" and "max" in the keywords that bound it
TYPES_BOUNDS = {
    "number": "imum", "decimal": "imum", "length": "Length", "bytes": "Length", "items": "Items",
    "members": "Properties",
}
#: keywords that put schemas together
TYPES_COMPOSED = frozenset(("$ref", "allOf", "anyOf", "oneOf"))


class _TypesFault(Exception):
    """A value that its type cannot hold, found on the way between JSON and Python, or a text that is no such value."""

    def __init__(self, message: str = "", *, expected: str = "") -> None:
        super().__init__(message)
        self.message = message or "expected " + expected  #: what is wrong, without the value
        self.expected = expected  #: of a text: what it should have been, a noun phrase: "a whole number"
        self.path: tuple[str | int, ...] = ()  #: keys and indexes from the root to it

    def under(self, key: str | int) -> _TypesFault:
        """Return this fault, found one level further down."""
        self.path = (key,) + self.path
        return self


class Arg:
    """Describe a parameter or field: ``title: Annotated[str, nk.Arg("what to do", min=1)]``.

    help: one sentence. choices: the only values. min, max: bounds of a number, a length or a count of items, by the
    type. pattern: ECMA-262, for text. choices and pattern of a list are those of its items. path: the text is a path
    (pathlib.Path always is). secret: never shown, asked without echo; its choices, though, stand in the schema.
    Of parameters alone: env: environment variable that fills it; alias: one letter; rest: takes everything to the end
    of the line. example: shown by help.
    All of it is checked when the function's schemas are made. Raises: REGISTRATION_ERROR then.
    """

    __slots__ = (
        "help", "choices", "min", "max", "pattern", "path", "env", "secret", "rest", "alias", "example", "default",
        "optional",
    )
    __knaif_arg__ = True

    def __init__(
        self, help: str = "", *, choices: Iterable[Any] | None = None, min: Any = None, max: Any = None,
        pattern: str | None = None, path: bool = False, env: str | None = None, secret: bool = False,
        rest: bool = False, alias: str | None = None, example: Any = TYPES_ABSENT,
    ) -> None:
        self.help = help  #: one sentence for people and models
        self.choices = choices  #: the only values, in Python's terms
        self.min = min  #: smallest number, length or count
        self.max = max  #: largest number, length or count
        self.pattern = pattern  #: ECMA-262 pattern of text
        self.path = path  #: whether every text in the value is a path
        self.env = env  #: name of an environment variable
        self.secret = secret  #: whether the value is never shown
        self.rest = rest  #: whether everything from its first token on is data
        self.alias = alias  #: one letter
        self.example = example  #: a value for help
        self.default: Any = TYPES_ABSENT  #: Python value where it is left out
        self.optional = False  #: whether it may be left out

    def __repr__(self) -> str:
        given = [f"{name}={getattr(self, name)!r}" for name in _types_given(self, Arg.__slots__[:-1])]
        return f"{type(self).__name__}({', '.join(given)})"


class Opt(Arg):
    """Describe a parameter or field that may be left out: ``Annotated[int, nk.Opt("how many", default=3)]``.

    Without a default of its own, or of Python's, it is None, which its type must admit then. Otherwise as Arg.
    """

    __slots__ = ()

    def __init__(
        self, help: str = "", *, default: Any = TYPES_ABSENT, choices: Iterable[Any] | None = None, min: Any = None,
        max: Any = None, pattern: str | None = None, path: bool = False, env: str | None = None, secret: bool = False,
        rest: bool = False, alias: str | None = None, example: Any = TYPES_ABSENT,
    ) -> None:
        super().__init__(help, choices=choices, min=min, max=max, pattern=pattern, path=path, env=env, secret=secret,
                         rest=rest, alias=alias, example=example)
        self.default = default  #: Python value where it is left out
        self.optional = True  #: always: it may be left out


def _types_given(arg: Arg, words: Iterable[str] = Arg.__slots__) -> list[str]:
    """Return those of these attributes of an Arg, of any copy of this module, that say something. Pure."""
    values = [(word, getattr(arg, word)) for word in words]
    return [word for word, value in values
            if value is not None and value is not False and value != "" and not _types_is_absent(value)]


def _types_is_absent(value: Any) -> bool:
    """Tell whether a value is TYPES_ABSENT, of any copy of this module. Pure."""
    return type(value).__name__ == "_ErrorsMark" and repr(value) == "(absent)"


class Field:
    """One member of an object: a parameter of a command, an application option, a field of a dataclass."""

    required = True  #: whether it must be given
    default: Any = TYPES_ABSENT  #: JSON value where it is left out
    factory: Any = None  #: makes a default for each call, where it is none that everybody shares
    help = ""  #: one sentence
    alias: str | None = None  #: one letter
    env: str | None = None  #: environment variable that fills it
    secret = False  #: never shown
    rest = False  #: takes everything to the end of the line
    variadic = False  #: stands for *args
    option_only = False  #: never a positional
    dashed = False  #: comes from a Python name, so that help writes - for _
    path = False  #: holds paths of the file system
    example: Any = None  #: JSON value for help

    def __init__(self, name: str, schema: Any, *, shape: Shape | None = None) -> None:
        self.name = name  #: the key in JSON
        self.schema = schema  #: of the value, with description, default and examples
        self.shape = shape  #: of the value; None where a raw schema describes it

    @property
    def public_name(self) -> str:
        """The name as help shows it. Pure."""
        return self.name.replace("_", "-") if self.dashed and self.name[:1] != "_" else self.name

    def __repr__(self) -> str:
        return f"<Field {self.name}>"


class Shape:
    """What a value must be: its schema, and the ways between JSON and Python."""

    form = "leaf"  #: leaf, object, array, tuple, map, union or alias: how the parts hang together
    parts: Any = ()  #: Fields of an object, else Shapes
    marks: frozenset[str] = frozenset()  #: roles: "path" of every text in the value, "secret" of the whole
    measure: str | None = None  #: what min and max bound: a key of TYPES_BOUNDS
    make: Any = None  #: the Python class; of a union: kind -> branches
    rank = 3  #: place in a union: null 0, literals 1, text of a form TYPES_FORMED, any text 4, anything 5
    hashes = True  #: whether the Python value can stand in a set
    tight = False  #: whether an Arg bounds it somewhere, so that defaults need validation
    asserts = True  #: whether formats are judged
    home: Any = None  #: the schema with the $defs of its references, where they are not its own
    _validator: Validator | None = None
    _roles: frozenset[str] | None = None
    _fills: bool | None = None

    def __init__(
        self, schema: Any, read: Callable[[Any], Any] | None, write: Callable[[Any], Any], word: str, **about: Any
    ) -> None:
        self.schema = schema  #: JSON Schema; what it refers to is in it at the root of a command or result
        self.read = read  #: valid JSON -> Python; None where the two are the same
        self.write = write  #: Python -> JSON, strictly
        self.word = word  #: noun phrase for messages
        self.__dict__.update(about)

    def copy(self, **changes: Any) -> Shape:
        """Return a copy with other attributes."""
        return Shape(**dict(self.__dict__, _validator=None, _roles=None, _fills=None, **changes))

    def _judge(self) -> Validator:
        if self._validator is None:
            schema = self.schema
            if self.home is not None and isinstance(schema, dict):
                schema = dict(schema, **self.home)
            self._validator = Validator(schema, assert_formats=self.asserts)
        return self._validator

    def issues(self, value: Any) -> list[Issue]:
        """Return what is wrong with a JSON value; no secret is shown. Raises: REGISTRATION_ERROR for a bad schema."""
        judge = self._validator or self._judge()
        if judge.is_valid(value):
            return []
        return judge.issues(value, hidden=self.locate(value, "secret") if self.has_role("secret") else None)

    def takes(self, value: Any) -> bool:
        """Tell whether a JSON value is valid; of text of a form, whether Python can hold it too."""
        valid = self._judge().is_valid(value)
        try:
            if valid and self.rank == TYPES_FORMED:
                self.take(value)
        except _TypesFault:
            return False
        return valid

    def complete(self, value: Any) -> Any:
        """Return a JSON value, valid or not, with the defaults of all objects in it, at every depth; or value itself.

        What is located, shown or digested must be complete: the constructors fill in what is missing and tell nobody.
        Raises: VALIDATION_ERROR where a default would make another branch of a union of it; INTERNAL_SERVER_ERROR for a
        default_factory that fails.
        """
        try:
            return _types_complete(self, value) if self.has_defaults() else value
        except (_TypesFault, RecursionError) as fault:
            raise self._refuse(value, fault) from fault.__cause__

    def to_python(self, value: Any) -> Any:
        """Return the typed value of valid JSON that is complete; its lists and dicts are new.

        Raises: VALIDATION_ERROR for what no schema can say: a date that Python cannot hold, a constructor's refusal.
        """
        try:
            return value if self.read is None else self.read(value)
        except (_TypesFault, RecursionError) as fault:
            raise self._refuse(value, fault) from fault.__cause__

    def take(self, value: Any) -> Any:
        """Return what to_python does, inside of another shape. Raises: _TypesFault."""
        return value if self.read is None else self.read(value)

    def _refuse(self, value: Any, fault: _TypesFault | RecursionError) -> Error:
        """Return the VALIDATION_ERROR for a fault met while reading or completing a value."""
        if isinstance(fault, RecursionError):
            return Error("VALIDATION_ERROR", "the value is nested too deeply to be read")
        found = [("type", fault.message, fault.message), _types_at(value, fault.path), *reversed(fault.path)]
        root = self.schema if self.has_role("secret") else True
        return _schema_error([_schema_issue(found, self.locate(value, "secret"), root)])

    def to_json(self, value: Any) -> Any:
        """Return the JSON form of a Python value, as new lists and dicts. Raises: _TypesFault where it has none."""
        try:
            return self.write(value)
        except RecursionError:
            raise _TypesFault("is nested too deeply or contains itself") from None

    def locate(self, value: Any, role: str) -> list[tuple[str | int, ...]]:
        """Return the places in a JSON value, valid or not, that have a role: "path" (each is text) or "secret"."""
        return [*_types_locate(self, value, role, ())] if self.has_role(role) else []

    def has_role(self, role: str) -> bool:
        """Tell whether a value of this shape can have a role."""
        if self._roles is None:
            self._roles = frozenset().union(*(shape.marks for shape in self._within()))
        return role in self._roles

    def has_defaults(self) -> bool:
        """Tell whether a value of this shape can hold an object in which something is left out for a default."""
        if self._fills is None:  # apart from _roles, which are asked for before the defaults are known
            self._fills = any(isinstance(part, Field) and part.default is not TYPES_ABSENT
                              for shape in self._within() for part in shape.parts)
        return self._fills

    def _within(self) -> list[Shape]:
        found: dict[Shape, None] = {}
        todo: list[Any] = [self]
        for shape in todo:  # which grows
            if shape not in found:
                found[shape] = None
                todo += [part.shape if isinstance(part, Field) else part for part in shape.parts]
        return [*found]

    def read_model(self, value: Any) -> Any:
        """Return the value as a model means it: text is read where the schema has no string. A new value. Pure."""
        return _types_read_model(self.schema, value, self.schema)


# What a schema says about a place


def _types_leaves(schema: Any, root: Any, budget: list[int] | None = None, level: int = 0) -> list[dict[str, Any]]:
    """Return a schema as a list of alternatives without $ref, allOf, anyOf and oneOf; [] for nothing. Pure.

    More than TYPES_ALTERNATIVES, or a schema made to grow, are one alternative that says nothing. A loop adds none.
    """
    if not isinstance(schema, dict):
        return [] if schema is False else [{}]
    if TYPES_COMPOSED.isdisjoint(schema):
        return [schema]
    budget = [TYPES_ALTERNATIVES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0:
        return [{}]
    if level == TYPES_LEVELS:
        return []
    groups = [[part] for part in schema.get("allOf") or ()]
    if "$ref" in schema:
        target = _schema_resolve({"$ref": schema["$ref"]}, root)
        groups.append([{} if target == {"$ref": schema["$ref"]} else target])  # in another document: says nothing
    groups += [schema[word] for word in ("anyOf", "oneOf") if word in schema]
    leaves = [{key: value for key, value in schema.items() if key not in TYPES_COMPOSED}]
    for group in groups:
        options = [leaf for part in group for leaf in _types_leaves(part, root, budget, level + 1)]
        if len(leaves) * len(options) > TYPES_ALTERNATIVES:
            return [{}]
        leaves = [_types_join(leaf, option) for leaf in leaves for option in options]
    return leaves


def _types_join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return an alternative that says what both say, as far as reading asks. Pure."""
    if not one or not other:
        return one or other
    joined = {**one, **other, "type": sorted(_types_leaf_kinds(one) & _types_leaf_kinds(other))}
    members = dict(one.get("properties") or {})
    for name, part in (other.get("properties") or {}).items():
        members[name] = {"allOf": [members[name], part]} if name in members and members[name] != part else part
    joined["properties"] = members
    joined["required"] = [*(one.get("required") or ()), *(other.get("required") or ())]
    return joined


def _types_literals(leaf: dict[str, Any]) -> list[Any] | None:
    literals = [leaf["const"]] if "const" in leaf else leaf.get("enum")
    return literals if isinstance(literals, list) else None


def _types_leaf_kinds(leaf: dict[str, Any]) -> frozenset[str]:
    """Return the kinds of value that an alternative admits. Pure."""
    kinds, declared, literals = TYPES_KINDS, leaf.get("type"), _types_literals(leaf)
    if isinstance(declared, (str, list)):
        words = [declared] if isinstance(declared, str) else [word for word in declared if isinstance(word, str)]
        kinds &= {*words, "integer"} if "number" in words else {*words}
    if literals is not None:
        found = {_json_kind(value) for value in literals}
        whole = any(isinstance(value, float) and value == value // 1 for value in literals)
        kinds &= found | {"integer"} if whole else found
    return kinds


def _types_kinds(schema: Any, root: Any) -> frozenset[str]:
    """Return the kinds of JSON value that a schema admits; "number" comes with "integer". Pure, bounded.

    >>> sorted(_types_kinds({"anyOf": [{"type": "number"}, {"const": None}]}, True))
    ['integer', 'null', 'number']
    """
    return _types_kinds_of(_types_leaves(schema, root))


def _types_kinds_of(leaves: Iterable[dict[str, Any]]) -> frozenset[str]:
    return frozenset().union(*map(_types_leaf_kinds, leaves))


def _types_one_of(schemas: Iterable[Any]) -> Any:
    """Return one schema for the different ones among these, {} for none; None among them says nothing. Pure."""
    kept: list[Any] = []
    for schema in schemas:
        if schema is not None and schema not in kept:
            kept.append(schema)
    return {"anyOf": kept} if len(kept) > 1 else kept[0] if kept else {}


def _types_member(schema: Any, key: str, root: Any) -> Any:
    """Return the schema of one member of an object, {} where nothing is said about it. Pure, bounded."""
    found = []
    for leaf in _types_leaves(schema, root):
        properties, other = leaf.get("properties") or {}, leaf.get("additionalProperties")
        part = properties.get(key, other if isinstance(other, dict) else None)
        for source in leaf.get("patternProperties") or () if key not in properties else ():
            if _types_matches(source, key):
                part = leaf["patternProperties"][source]
        found.append(part)
    return _types_one_of(found)


def _types_matches(pattern: Any, text: str) -> bool:
    """Tell whether a pattern, which may be none, finds something in text. Pure."""
    try:
        return bool(_format_pattern(pattern).search(text))
    except ValueError:
        return False


def _types_element(schema: Any, root: Any, index: int | None = None) -> Any:
    """Return the schema of the items of an array, of any or of one; {} where nothing is said. Pure, bounded."""
    found = []
    for leaf in _types_leaves(schema, root):
        first, rest = leaf.get("prefixItems") or [], leaf.get("items")
        if isinstance(rest, list):  # draft-07
            first, rest = rest, leaf.get("additionalItems")
        if index is not None:
            first = [first[index]] if index < len(first) else []
            rest = None if first else rest
        found += [*first, rest if isinstance(rest, dict) else None]
    return _types_one_of(found)


# Reading text


def _types_split_number(text: str) -> tuple[str, str, str] | None:
    """Return the digits (whole, fraction, exponent) of a decimal number with an optional sign, None for other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    mantissa, mark, exponent = digits.replace("E", "e").partition("e")
    whole, point, fraction = mantissa.partition(".")
    exponent = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    pieces = [whole] + [fraction] * len(point) + [exponent] * len(mark)
    sound = len(digits) <= JSON_INT_DIGITS and digits.isascii() and all(map(str.isdigit, pieces))
    return (whole, fraction, exponent) if sound else None


def _types_read_number(text: str, whole_only: bool) -> Any:
    """Return the number of ``[+-]?[0-9]+``, or of a JSON number with an optional plus; else TYPES_ABSENT. Pure."""
    parts = _types_split_number(text)
    if parts is None or not whole_only and parts[0] != "0" == parts[0][0]:
        return TYPES_ABSENT
    if parts[1:] == ("", ""):
        return int(text)
    number = float(text)
    return number if number - number == 0.0 and not whole_only else TYPES_ABSENT


def _types_read_value(kinds: frozenset[str], text: str, max_depth: int) -> Any:
    """Return the first reading of text that is no string: boolean, number, array or object; else TYPES_ABSENT."""
    value: Any = TYPES_ABSENT
    if "boolean" in kinds and text in ("true", "false"):
        value = text == "true"
    elif "integer" in kinds or "number" in kinds:
        value = _types_read_number(text, "number" not in kinds)
    if value is TYPES_ABSENT and text.lstrip(" \t\n\r")[:1] in ("[", "{") and not kinds.isdisjoint(("array", "object")):
        try:
            value = _json_loads(text, max_depth=max_depth)
        except _JsonFault:
            return TYPES_ABSENT
        return value if _json_kind(value) in kinds else TYPES_ABSENT
    return value


def _types_read_text(schema: Any, text: str, root: Any) -> Any:
    """Return the JSON value that typed text means in a schema: the one rule for argv, environment and standard input.

    Text stays text where a string branch takes it, else it is the first of boolean, number, array, object that reads;
    literals of several types stay text. Raises: _TypesFault. Pure.

    >>> _types_read_text({"type": "integer"}, "-34", True), _types_read_text({"type": "string"}, "1.10", True)
    (-34, '1.10')
    """
    leaves = _types_leaves(schema, root)
    kinds = _types_kinds_of(leaves)
    others = kinds - {"null"}
    if others == {"boolean"}:
        if text.isascii() and text.lower() in TYPES_BOOLEANS:
            return TYPES_BOOLEANS[text.lower()]
        raise _TypesFault(expected=TYPES_WORDS["boolean"])
    texts = [leaf for leaf in leaves if "string" in _types_leaf_kinds(leaf)]
    words = [_types_clock_word(leaf) for leaf in texts]
    ordinary = "" in words or not kinds
    if ordinary and others <= {"string"} or _types_is_mixed(leaves) or any(_types_takes(leaf, text) for leaf in texts):
        return text
    value = _types_read_value(kinds, text, JSON_DEPTH_LEVELS)
    if value is not TYPES_ABSENT:
        return value
    if ordinary:
        return text
    numbers = {"number", "integer"} if TYPES_CLOCKS["decimal"] in words else {"integer"} if "number" in kinds else set()
    named = [word for kind, word in TYPES_WORDS.items() if kind in (others or kinds) - numbers]
    raise _TypesFault(expected=" or ".join([*dict.fromkeys(words), *named]))


def _types_clock_word(leaf: dict[str, Any]) -> str:
    """Return what the text of an alternative must look like to be read, "" where it is ordinary text. Pure."""
    name = leaf.get("format")
    return TYPES_CLOCKS.get(name, "") if isinstance(name, str) else ""


def _types_is_mixed(leaves: Sequence[dict[str, Any]]) -> bool:
    """Tell whether alternatives are literals alone, of more than one primitive type, null aside. Pure."""
    kinds = {"null"}
    for leaf in leaves:
        literals = _types_literals(leaf)
        if literals is None and leaf.get("type") != "null":
            return False
        kinds.update(_json_kind(literal).replace("integer", "number") for literal in literals or ())
    return len(kinds) > 2


def _types_takes(leaf: dict[str, Any], text: str) -> bool:
    """Tell whether an alternative takes text, formats included. Pure."""
    literals, name, pattern = _types_literals(leaf), leaf.get("format"), leaf.get("pattern")
    least, most = leaf.get("minLength", 0), leaf.get("maxLength", len(text))
    if literals is not None and not any(isinstance(literal, str) and literal == text for literal in literals):
        return False
    if _types_clock_word(leaf):
        return _types_is_clock(str(name), text)
    if isinstance(name, str) and _format_check(name, text) is False or not least <= len(text) <= most:
        return False
    return pattern is None or _types_matches(pattern, text)


def _types_read_model(schema: Any, value: Any, root: Any, level: int = 0) -> Any:
    """Return a new value in which text is read wherever the schema has no string branch and no mixed literals.

    "42", "true", "[1]" are read; "yes" and "null" are not. What cannot be read stays, for validation to refuse. Pure.
    """
    if isinstance(value, str):
        leaves = _types_leaves(schema, root)
        kinds = _types_kinds_of(leaves)
        if "string" not in kinds and not _types_is_mixed(leaves):
            read = _types_read_value(kinds, value, max(JSON_DEPTH_LEVELS - level, 0))
            value = value if read is TYPES_ABSENT else read
    if isinstance(value, dict) and level < JSON_DEPTH_LEVELS:
        return {key: _types_read_model(_types_member(schema, key, root), item, root, level + 1)
                for key, item in value.items()}
    if isinstance(value, list) and level < JSON_DEPTH_LEVELS:
        return [_types_read_model(_types_element(schema, root, index), item, root, level + 1)
                for index, item in enumerate(value)]
    return value


def _types_is_clock(name: str, text: str) -> bool:
    """Tell whether text has the form of a format of TYPES_CLOCKS, offset and seconds being optional. Pure."""
    if name == "decimal":
        parts = _types_split_number(text)
        return parts is not None and len(parts[2]) <= TYPES_EXPONENT_DIGITS
    dated, timed = "date" in name, "time" in name
    if timed and _types_split_time(text[11:] if dated else text) is None:
        return False
    end = text[10:11] in ("T", "t") if timed else len(text) == 10
    return not dated or end and _format_check("date", text[:10]) is True


def _types_split_time(text: str) -> tuple[list[int], int | None] | None:
    """Return ([hour, minute, second, microsecond], minutes of offset or None) of an ISO 8601 time; None for other text.

    Digits beyond the microsecond are cut. Pure.

    >>> _types_split_time("07:30"), _types_split_time("23:59:59.5-01:30")
    (([7, 30, 0, 0], None), ([23, 59, 59, 500000], -90))
    """
    offset: int | None = None
    if text[-1:] in ("Z", "z"):
        text, offset = text[:-1], 0
    elif text[-6:-5] in ("+", "-"):
        there = _types_split_time(text[-5:])
        if there is None:
            return None
        offset = (there[0][0] * 60 + there[0][1]) * (-1 if text[-6] == "-" else 1)
        text = text[:-6]
    clock, point, fraction = text.partition(".")
    pieces = clock.split(":")
    digits = "".join(pieces) + fraction
    if [*map(len, pieces)] not in ([2, 2], [2, 2, 2]) or not (digits.isascii() and digits.isdigit()):
        return None
    if point and not (fraction and pieces[2:]) or pieces[0] > "23" or pieces[1] > "59" or pieces[-1] > "60":
        return None
    return [*map(int, pieces), *[0] * (3 - len(pieces)), int(fraction[:6].ljust(6, "0"))], offset


# JSON -> Python and back: readers get valid JSON, writers get anything


def _types_steps(shape: Shape, value: Any) -> list[tuple[Any, Any, Any]]:
    """Return (shape, key or index, value) of what a JSON value, valid or not, holds one level further down."""
    parts, form = shape.parts, shape.form
    if isinstance(value, dict):
        if form == "object":
            return [(field.shape, field.name, value[field.name]) for field in parts if field.name in value]
        return [(parts[0], key, item) for key, item in value.items()] if form == "map" else []
    if not isinstance(value, list) or form not in ("array", "tuple"):
        return []
    shapes = parts * len(value) if form == "array" else parts
    return [(part, index, item) for index, (part, item) in enumerate(zip(shapes, value))]


def _types_locate(shape: Shape, value: Any, role: str, path: tuple[Any, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of a role in a JSON value, which need not be valid."""
    steps = _types_steps(shape, value)
    if role in shape.marks:
        if role == "secret" or isinstance(value, str):
            yield path
            return
        pairs = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
        steps = [(shape, key, item) for key, item in pairs]
    else:
        for branch in _types_choose(shape, value):
            yield from _types_locate(branch, value, role, path)
    for part, key, item in steps:
        if part.has_role(role):
            yield from _types_locate(part, item, role, path + (key,))


def _types_complete(shape: Shape, value: Any) -> Any:
    """Return what Shape.complete does. Raises: _TypesFault where defaults would make another type of it."""
    if not shape.has_defaults():
        return value
    if shape.form in ("union", "alias"):
        chosen = _types_choose(shape, value)
        if len(chosen) != 1:
            return value
        made = _types_complete(chosen[0], value)
        if _types_choose(shape, made) != chosen:
            raise _TypesFault(f"is {chosen[0].word} that its defaults make into another type; give more members")
        return made
    if shape.form == "object" and isinstance(value, dict):
        filled = {field.name: value[field.name] if field.name in value else _types_default(field)
                  for field in shape.parts if field.name in value or field.default is not TYPES_ABSENT}
        value = {**filled, **value}
    steps = _types_steps(shape, value)
    made = dict(value) if isinstance(value, dict) else list(value) if steps else value
    key: Any = None
    try:
        for part, key, item in steps:
            made[key] = _types_complete(part, item)
    except _TypesFault as fault:
        raise fault.under(key)
    return made


def _types_default(field: Field) -> Any:
    """Return a new default of a field as JSON. Raises: INTERNAL_SERVER_ERROR for a default_factory that fails."""
    if field.factory is None:
        return _json_copy(field.default)
    shape: Any = field.shape
    cause: Exception | None = None
    try:
        made = shape.to_json(field.factory())
        why = "".join(issue.message for issue in (shape.issues(made) if shape.tight else ())[:1])
    except Exception as error:
        cause, why = error, error.message if isinstance(error, _TypesFault) else f"it raised {type(error).__name__}"
    if why:
        raise Error("INTERNAL_SERVER_ERROR", f'the default_factory of "{field.name}" gave no default: {why}') from cause
    return made


def _types_at(value: Any, path: Sequence[Any]) -> Any:
    """Return the value at a place, None where the place is not in it. Pure."""
    try:
        for key in path:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _types_refused(word: str, value: object) -> _TypesFault:
    """Return the fault of a writer: it names the type of a value, never the value."""
    return _TypesFault(f"expected {word}, got {'None' if value is None else type(value).__name__}")


def _types_write_scalar(value: Any) -> Any:
    """Return the JSON form of text, a number, a boolean or None. Raises: _TypesFault for a number that has none."""
    if type(value) in JSON_FIXED_TYPES:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        if value - value == 0.0:
            return float.__float__(value)
        raise _TypesFault(f"is {'NaN' if value != value else 'infinite'}, which no JSON number is")
    if -JSON_INT_LIMIT < value < JSON_INT_LIMIT:
        return int.__index__(value)
    raise _TypesFault(f"is an integer of more than {JSON_INT_DIGITS:,} digits")


def _types_writer(word: str, *kinds: type) -> Callable[[Any], Any]:
    """Return the writer of scalars of these classes."""

    def write(value: Any) -> Any:
        if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
            return _types_write_scalar(value)
        raise _types_refused(word, value)

    return write


def _types_read_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _TypesFault("is too large for a float") from None


def _types_write_bytes(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        from binascii import b2a_base64

        return b2a_base64(value, newline=False).decode("ascii")
    raise _types_refused("bytes", value)


def _types_read_bytes(value: str) -> bytes:
    """Return the bytes of base64 text as RFC 4648 4 writes them: padded, no blanks, zeros in the unused bits."""
    from binascii import a2b_base64

    try:
        data = a2b_base64(value)
    except ValueError:
        data = b""
    if _types_write_bytes(data) != value:
        raise _TypesFault("is not base64 text")
    return data


def _types_write_free(value: Any) -> Any:
    """Return the JSON form of a value without an annotation, as new plain lists, dicts and scalars.

    Known types are written as their annotations say: an Enum as its value, a date as text, a dataclass as an object.
    Raises: _TypesFault, with the path, for all others, NaN, cycles and too many levels.
    """
    kind = type(value)
    if kind in JSON_FIXED_TYPES:
        return value
    if kind in JSON_SCALAR_TYPES:
        return _types_write_scalar(value)
    if kind in JSON_CONTAINER_TYPES and _json_is_plain(value, JSON_DEPTH_LEVELS):
        try:
            return _json_copy(value)
        except _JsonFault:
            pass  # is named below
    return _types_write_known(value, {}, JSON_DEPTH_LEVELS)


def _types_write_known(value: Any, writers: dict[type, Any], levels: int) -> Any:
    """Return what _types_write_free does. writers: those of classes met before; levels: how many there may still be."""
    kind = type(value)
    if kind in JSON_FIXED_TYPES:
        return value
    if kind is not int and isinstance(value, _types_enum()):
        return _types_write_known(value.value, writers, levels)
    if isinstance(value, (str, int, float)):
        return _types_write_scalar(value)
    if levels == 0:
        raise _TypesFault("is nested too deeply or contains itself")

    def convert(item: Any) -> Any:
        return _types_write_known(item, writers, levels - 1)

    if isinstance(value, sys.modules["_collections_abc"].Mapping):
        return _types_write_members(value, convert)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _types_write_members(dict(zip(kind._fields, value)), convert)
    if isinstance(value, (list, tuple)):
        return _types_write_items(value, convert)
    if isinstance(value, (set, frozenset)):
        return _types_write_set(value, convert)
    if hasattr(kind, "__dataclass_fields__"):
        names = [name for name, field in kind.__dataclass_fields__.items() if field._field_type.name == "_FIELD"]
        return _types_write_members({name: getattr(value, name, TYPES_ABSENT) for name in names}, convert)
    if isinstance(value, (bytes, bytearray)):
        return _types_write_bytes(value)
    if kind not in writers:
        known = [_types_known(base) for base in kind.__mro__]
        writers[kind] = next((shape.write for shape in known if shape is not None), None)
    if writers[kind] is not None:
        return writers[kind](value)
    if value is TYPES_ABSENT:
        raise _TypesFault("is missing")
    raise _TypesFault(f"expected a JSON value, got {kind.__name__}; convert it, or annotate its type")


def _types_write_set(value: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in every process."""
    made = _types_write_items(value, convert)
    if len({_json_key(one) for one in made}) != len(made):
        raise _TypesFault("has an item twice")
    made.sort(key=_types_order)
    return made


def _types_write_items(value: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    made: list[Any] = []
    try:
        for item in value:
            made.append(convert(item))
    except _TypesFault as fault:
        raise fault.under(len(made))
    return made


def _types_write_members(value: Mapping[Any, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    key: Any = None
    for key, item in value.items():
        if not isinstance(key, str):
            raise _TypesFault(f"has a key of type {type(key).__name__}, where JSON has text")
        try:
            made[key if type(key) is str else str.__str__(key)] = convert(item)
        except _TypesFault as fault:
            raise fault.under(key)
    return made


def _types_order(value: Any) -> tuple[str, Any]:
    """Return what a JSON value is sorted by among others: kind, then value. Pure."""
    return _json_kind(value), value if isinstance(value, (str, int, float)) else _json_canonical(value)


def _types_array(make: Any, item: Shape) -> Shape:
    """Return the shape of a list, tuple, set or frozenset of one type of items."""
    unique, convert = make in (set, frozenset), item.read
    schema: dict[str, Any] = {"type": "array"}
    if item.schema != {}:
        schema["items"] = item.schema
    if unique:
        schema["uniqueItems"] = True

    def read(value: Any) -> Any:
        made = value if convert is None else _types_write_items(value, convert)
        try:
            return make(made)
        except TypeError:
            raise _TypesFault(f"has items that cannot stand in a {make.__name__}") from None

    def write(value: Any) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset) if unique else (list, tuple)):
            raise _types_refused(f"a {make.__name__}", value)
        return (_types_write_set if unique else _types_write_items)(value, item.write)

    return Shape(schema, read, write, f"a {make.__name__}", form="array", parts=(item,),
                 measure="items", make=make, hashes=make in (tuple, frozenset) and item.hashes, tight=item.tight)


def _types_tuple(items: Sequence[Shape]) -> Shape:
    """Return the shape of a tuple of so many items."""
    count = len(items)
    schema: dict[str, Any] = {"type": "array", "maxItems": count}
    if items:
        schema.update(prefixItems=[item.schema for item in items], items=False, minItems=count)

    def read(value: Any) -> Any:
        return tuple(_types_write_items(zip(items, value), lambda pair: pair[0].take(pair[1])))

    def write(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            raise _types_refused(f"a tuple of {count} items", value)
        return _types_write_items(zip(items, value), lambda pair: pair[0].write(pair[1]))

    return Shape(schema, read, write, "a tuple", form="tuple", parts=tuple(items), make=tuple,
                 hashes=all(item.hashes for item in items), tight=any(item.tight for item in items))


def _types_map(key: Shape, item: Shape) -> Shape:
    """Return the shape of a dict with text for keys and values of one type."""
    schema: dict[str, Any] = {"type": "object"}
    if key.schema not in ({"type": "string"}, {}):
        schema["propertyNames"] = key.schema
    if item.schema != {}:
        schema["additionalProperties"] = item.schema
    def read(value: Any) -> Any:
        return dict(value) if item.read is None else _types_write_members(value, item.read)

    def write(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, sys.modules["_collections_abc"].Mapping):
            raise _types_refused("a dict", value)
        return _types_write_members(value, item.write)

    return Shape(schema, read, write, "a dict", form="map", parts=(item,), measure="members", make=dict, hashes=False,
                 tight=item.tight or key.tight)


def _types_object(fields: Sequence[Field], make: Any, word: str) -> Shape:
    """Return the shape of a closed object; make: called with the members as keywords, or dict to keep them so."""
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: field.schema for field in fields}}
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    shapes: list[Any] = [field.shape for field in fields]
    plan = [(field.name, shape.read) for field, shape in zip(fields, shapes)]

    def read(value: Any) -> Any:
        """Return the members, each converted, or what make makes of them."""
        made: dict[str, Any] = {}
        name = ""
        try:
            for name, convert in plan:
                if name in value:
                    made[name] = value[name] if convert is None else convert(value[name])
        except _TypesFault as fault:
            raise fault.under(name)
        if make is dict:
            return made
        try:
            return make(**made)
        except (ValueError, TypeError, ArithmeticError) as error:
            why = "" if any(shape.has_role("secret") for shape in shapes) else f": {error}"
            raise _TypesFault(f"is refused by {make.__name__}{why[:TYPES_NOTE_CHARACTERS]}") from error

    write = _types_object_writer(fields, make, word)
    return Shape(schema, read, write, word, form="object", parts=tuple(fields), make=make,
                 hashes=make is not dict and make.__hash__ is not None, tight=any(shape.tight for shape in shapes))


def _types_object_writer(fields: Sequence[Field], make: Any, word: str) -> Callable[[Any], Any]:
    """Return the writer of a closed object: of the items of a dict, or of the attributes of an instance."""
    names: dict[str, Any] = {field.name: field for field in fields}

    def write(value: Any) -> Any:
        """Return the object; every declared member and no other."""
        if not isinstance(value, make):
            raise _types_refused(word, value)
        if make is not dict:
            value = {name: getattr(value, name) for name in names if hasattr(value, name)}
        made: dict[str, Any] = {}
        name: Any = None
        try:
            for name in value:
                if name not in names:
                    raise _TypesFault("is not declared")
            for name, field in names.items():
                if name in value:
                    made[name] = field.shape.write(value[name])
                elif field.required:
                    raise _TypesFault("is missing")
        except _TypesFault as fault:
            raise fault.under(name if isinstance(name, str) else repr(name))
        return made

    return write


def _types_choose(union: Shape, value: Any) -> list[Shape]:
    """Return the branch of a union that a JSON value is read by; where none takes it, all that have values of its kind.

    Reading and locating choose by this alone: were they to differ, a path could pass for something else. An alias has
    one branch, every other form none.
    """
    if union.form != "union":
        return union.parts if union.form == "alias" else []
    kind = _json_kind(value)
    whole = kind == "number" and kind not in union.make and value == value // 1
    branches: list[Shape] = union.make.get("integer" if whole else kind, [])
    first = next((branch for branch in branches if branch.takes(value)), None) if len(branches) > 1 else None
    return branches if first is None else [first]


def _types_union(branches: Sequence[Shape], home: Any) -> Shape:
    """Return the shape of a union of branches that JSON can tell apart; home: where their references point."""
    ranked = sorted(branches, key=lambda branch: branch.rank)
    others = [branch for branch in ranked if branch.rank]
    word = " or ".join(branch.word for branch in branches)
    table: dict[str, list[Shape]] = {}
    for branch in ranked:
        branch.home = home
        for kind in sorted(_types_kinds(branch.schema, home)):
            table.setdefault(kind, []).append(branch)

    def read(value: Any) -> Any:
        chosen = _types_choose(union, value)
        if len(chosen) != 1:
            raise _TypesFault(f"is not {word}")
        return chosen[0].take(value)

    def write(value: Any) -> Any:
        deepest = None
        for branch in branches:
            try:
                return branch.write(value)
            except _TypesFault as fault:
                deepest = fault if deepest is None or len(fault.path) > len(deepest.path) else deepest
        raise deepest if deepest is not None and deepest.path else _types_refused(word, value)

    union = Shape({"anyOf": [branch.schema for branch in branches]}, read, write, word, form="union", make=table,
                  parts=tuple(branches), hashes=all(branch.hashes for branch in branches),
                  tight=any(branch.tight for branch in branches))
    if all(branch.read is None for branch in others) or [branch.make for branch in others] in TYPES_NUMBERS:
        union.read = None
    return union


def _types_choice(values: Sequence[tuple[Any, Any]], word: str, make: Any = None) -> Shape:
    """Return the shape of a set of literals, as pairs (JSON, Python)."""
    kinds = {_json_kind(value) for value, _ in values}
    schema: dict[str, Any] = {"type": kinds.pop()} if len(kinds) == 1 else {}
    schema["enum"] = [value for value, _ in values]
    known = {_json_key(value): thing for value, thing in values}
    back = {(type(thing), thing): value for value, thing in values}
    same = all(type(value) is type(thing) and not isinstance(value, (int, float)) for value, thing in values)

    def write(value: Any) -> Any:
        try:
            return back[type(value), value]
        except (KeyError, TypeError):
            raise _types_refused(word, value) from None

    return Shape(schema, None if same else lambda value: known[_json_key(value)], write, word, make=make, rank=1)


def _types_clock(kind: str, module: Any) -> Shape:
    """Return the shape of the date, datetime or time of module."""
    make = getattr(module, kind)
    name = {"date": "date", "datetime": "iso-date-time", "time": "iso-time"}[kind]
    word = TYPES_CLOCKS[name].replace("an ISO 8601", "a")

    def read(text: str) -> Any:
        try:
            if not _types_is_clock(name, text):
                raise ValueError
            day = module.date.fromisoformat(text[:10]) if kind != "time" else None
            if kind == "date":
                return day
            clock, offset = _types_split_time(text if day is None else text[11:]) or ([], None)
            zone = None if offset is None else module.timezone(module.timedelta(minutes=offset))
            return make(*clock, zone) if day is None else make(day.year, day.month, day.day, *clock, zone)
        except ValueError:
            raise _TypesFault(f"is not {word} that exists") from None

    def write(value: Any) -> str:
        if not isinstance(value, make) or kind == "date" and isinstance(value, module.datetime):
            raise _types_refused(word, value)
        text = str(value.isoformat())
        if not _types_is_clock(name, text):
            raise _TypesFault("has an offset that is no whole number of minutes")
        return text

    return Shape({"type": "string", "format": name}, read, write, word, make=make, rank=TYPES_FORMED)


def _types_decimal(make: Any) -> Shape:
    """Return the shape of decimal.Decimal: JSON text or number -> the exact decimal, written as text."""

    def read(value: Any) -> Any:
        try:
            text = value if isinstance(value, str) else repr(value)
        except ValueError:  # more digits than this program admits
            text = ""
        if not _types_is_clock("decimal", text):
            raise _TypesFault("is not a decimal number")
        return make(text)

    def write(value: Any) -> str:
        if not isinstance(value, make):
            raise _types_refused("a Decimal", value)
        if not _types_is_clock("decimal", str(value)):
            raise _TypesFault("is no finite decimal of a usual size")
        return str(value)

    schema = {"type": ["string", "number"], "format": "decimal"}
    return Shape(schema, read, write, "a decimal number", measure="decimal", make=make, rank=TYPES_FORMED)


def _types_from_text(make: Any, schema: dict[str, Any], word: str, **about: Any) -> Shape:
    """Return the shape of a class that is made from text and written as it: UUID, Path."""

    def read(text: str) -> Any:
        try:
            return make(text)
        except (ValueError, TypeError):
            raise _TypesFault(f"is not {word}") from None

    def write(value: Any) -> str:
        if isinstance(value, make):
            return str(value)
        raise _types_refused(word, value)

    return Shape(schema, read, write, word, make=make, rank=TYPES_FORMED, **about)


def _types_known(kind: Any) -> Shape | None:
    """Return the shape of a class of the standard library that JSON has as text, None for any other class."""
    modules = sys.modules
    for name in ("date", "datetime", "time") if "datetime" in modules else ():
        if kind is getattr(modules["datetime"], name):
            return _types_clock(name, modules["datetime"])
    if "uuid" in modules and kind is modules["uuid"].UUID:
        return _types_from_text(kind, {"type": "string", "format": "uuid"}, "a UUID")
    if "decimal" in modules and kind is modules["decimal"].Decimal:
        return _types_decimal(kind)
    if "pathlib" in modules and issubclass(kind, modules["pathlib"].PurePath):
        return _types_from_text(kind, {"type": "string"}, "a path", marks=frozenset(("path",)), measure="length")
    return None


def _types_scalar(kind: Any) -> Shape | None:
    """Return the shape of what TYPES_SCALARS lists, None for anything else. Raises: TypeError for what has no hash."""
    found = TYPES_SCALARS.get(kind)
    if found is None:
        return None
    schema, read, write, word, measure, rank = found
    write = _types_writer(*write) if isinstance(write, tuple) else write
    return Shape(schema, read, write, word, measure=measure, rank=rank, make=kind)


#: Python type -> schema, reader, writer or what _types_writer makes it of, word, measure, rank
TYPES_SCALARS: dict[Any, Any] = {
    str: ({"type": "string"}, None, ("text", str), "text", "length", 4),
    int: ({"type": "integer"}, int, ("a whole number", int), "a whole number", "number", 3),
    float: ({"type": "number"}, _types_read_float, ("a number", int, float), "a number", "number", 3),
    bool: ({"type": "boolean"}, None, ("True or False", bool), "true or false", None, 3),
    bytes: (
        {"type": "string", "contentEncoding": "base64"}, _types_read_bytes, _types_write_bytes, "bytes", "bytes", 3
    ),
    object: ({}, _json_copy, _types_write_free, "a JSON value", None, 5),
    type(None): ({"type": "null"}, None, ("None", type(None)), "null", None, 0),
}


# Annotations as Python gives them

#: what annotation text says most often: nothing to evaluate
TYPES_BUILTIN = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes, "list": list, "dict": dict}

def _types_enum() -> Any:
    """Return enum.Enum, or () where nobody has imported it: nothing is an instance or subclass of that."""
    return sys.modules["enum"].Enum if "enum" in sys.modules else ()


def _types_rewrite(text: str) -> str:
    """Return the text of an expression in which X | Y is a subscript of the name TYPES_UNION, for Python 3.9."""
    import ast

    def visit(walker: Any, node: Any) -> Any:
        walker.generic_visit(node)
        pair = f"TYPES_UNION[{ast.unparse(node.left)}, {ast.unparse(node.right)}]"
        return ast.parse(pair, mode="eval").body if isinstance(node.op, ast.BitOr) else node

    walker: Any = type("walker", (ast.NodeTransformer,), {"visit_BinOp": visit})()
    return ast.unparse(walker.visit(ast.parse(text.strip(), mode="eval")))


def _types_evaluate(text: str, scope: dict[str, Any], old: bool = sys.version_info < (3, 10)) -> Any:
    """Return what annotation text means among the globals of its owner: the one place that evaluates anything."""
    if text in TYPES_BUILTIN and text not in scope:
        return TYPES_BUILTIN[text]
    names: dict[str, Any] = {}
    if old and "|" in text:
        import typing

        text, names["TYPES_UNION"] = _types_rewrite(text), typing.Union
    return eval(text, scope, names)


def _types_hints(thing: Any) -> dict[str, Any]:
    """Return the annotations of a function or class; what Python 3.14 cannot evaluate yet stays a ForwardRef."""
    try:
        return dict(thing.__annotations__)
    except NameError:
        from importlib import import_module

        library = import_module("annotationlib")
        return dict(library.get_annotations(thing, format=library.Format.FORWARDREF))
# endregion TYPES


# region SHAPES -- annotations, functions, options and raw schemas -> Shapes
# needs: LIMITS ERRORS JSON FORMAT SCHEMA TYPES
# Every annotation becomes a Shape or a RegistrationError that names owner, place and remedy. Text is evaluated in the
# globals of whoever owns it: those of the function, of the module of the class. A class or alias that refers to itself
# stands in $defs, every other type in its place. A default, example or choice that its own type refuses is a fault.
#
# A union is refused where JSON could not tell its branches apart: two with equal schemas (uniqueItems and
# contentEncoding aside), literal sets that overlap, Decimal beside int or float. Path beside str is a Path.

#: keywords in which two schemas may differ without JSON showing which of the two Python types is meant
SHAPES_SILENT = frozenset(("description", "default", "examples", "uniqueItems", "contentEncoding"))
#: names of collections.abc -> the container that stands for them
SHAPES_ABSTRACT = {
    "Sequence": list, "MutableSequence": list, "Collection": list, "Iterable": list, "Set": set, "MutableSet": set,
    "Mapping": dict, "MutableMapping": dict,
}
#: annotations without a JSON form, by name -> what to write instead
SHAPES_REMEDIES = {
    "timedelta": "use int or float for seconds", "complex": "use tuple[float, float]", "bytearray": "use bytes",
    "Arg": "write Annotated[type, nk.Arg(...)]", "Opt": "write Annotated[type, nk.Opt(...)]",
    "Ctx": "write nk.Ctx alone",
    "TypeVar": "name the type itself", "Iterator": "use list[...]", "Generator": "use list[...]",
    "Flag": "use list[...] of an Enum", "Callable": "take the name of what to call, as str",
}
SHAPES_REMEDY = "use a type that JSON can carry, such as str, int, list[str], a dataclass, or Any"
SHAPES_UNREAD = "is annotated @, which cannot be evaluated"
SHAPES_TOP_LEVEL = "define or import its names at the top level of the module, not under TYPE_CHECKING"


def _shapes_special(thing: Any) -> str:
    """Return the name of a special form of typing or typing_extensions, "" for anything else. Pure."""
    if getattr(thing, "__module__", None) not in ("typing", "typing_extensions", "types"):
        return ""
    name = getattr(thing, "_name", None) or getattr(thing, "__name__", None)
    return name if isinstance(name, str) else ""


def _shapes_scope(thing: Any) -> dict[str, Any]:
    """Return the globals that the annotations of a class or alias stand in."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return {} if module is None else module.__dict__


def _shapes_cut(thing: Any) -> str:
    """Return how a message shows an annotation or the text of an error."""
    named = isinstance(thing, type) and not hasattr(thing, "__args__")
    text = thing.__qualname__ if named else thing if isinstance(thing, str) else repr(thing)
    return text if len(text) <= TYPES_NOTE_CHARACTERS else text[: TYPES_NOTE_CHARACTERS - 3] + "..."


def _shapes_merge(notes: Sequence[Arg]) -> Arg:
    """Return one Arg that says what all of these say; of two that disagree, the later. Pure."""
    merged = Arg()
    for note in notes:
        for name in _types_given(note):
            setattr(merged, name, getattr(note, name))
    return merged


def _shapes_bare(schema: Any) -> Any:
    """Return a schema without what JSON cannot show. Pure."""
    if isinstance(schema, list):
        return [_shapes_bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    members = {name: _shapes_bare(part) for name, part in schema.get("properties", {}).items()}
    silent = SHAPES_SILENT | {"properties"}
    rest = {key: _shapes_bare(value) for key, value in schema.items() if key not in silent}
    return dict(rest, properties=members) if members else rest


def _shapes_are_alike(one: Shape, other: Shape) -> bool:
    """Tell whether the choice between two branches of a union would be a guess. Pure."""
    if {one.measure, other.measure} == {"number", "decimal"}:
        return True
    if one.rank <= 1 and other.rank <= 1:
        literals = [frozenset(map(_json_key, shape.schema.get("enum", (None,)))) for shape in (one, other)]
        return any(shape.rank and shape.make for shape in (one, other)) and not literals[0].isdisjoint(literals[1])
    if _shapes_bare(one.schema) != _shapes_bare(other.schema):
        return False
    return str not in (one.make, other.make) or ("path" in one.marks) == ("path" in other.marks)


def _shapes_bounded(shape: Shape, least: Any, most: Any) -> Callable[[Any], Any]:
    """Return a reader that judges bounds which JSON Schema cannot: of decimals written as text, of decoded bytes."""
    read: Any = shape.read
    measure, unit = (len, " bytes") if shape.measure == "bytes" else (shape.make, "")
    low, high = [limit if unit or limit is None else shape.make(str(limit)) for limit in (least, most)]

    def bounded(value: Any) -> Any:
        made = read(value)
        if low is not None and measure(made) < low:
            raise _TypesFault(f"is not at least {low}{unit}")
        if high is not None and measure(made) > high:
            raise _TypesFault(f"is not at most {high}{unit}")
        return made

    return bounded


def _shapes_has_text(shape: Shape) -> bool:
    """Tell whether a value of a shape can be, or hold in lists and dicts, text that could be a path."""
    if shape.schema == {} or shape.measure == "length":
        return True
    return shape.form not in ("object", "alias") and any(_shapes_has_text(part) for part in shape.parts)


class _ShapesCompiler:
    """Turns the annotations of one owner into shapes; every fault names the owner and the place."""

    def __init__(self, owner: str, output: bool = False) -> None:
        self.owner = owner  #: how messages name the function
        self.output = output  #: whether values go out, where nothing is left out for a default
        self.home: dict[str, Any] = {"$defs": {}}  #: what the references of this owner point into
        self.trail: list[str] = []  #: the places on the way to the annotation at hand
        self.named: dict[Any, list[Any]] = {}  #: class or alias -> [Shape once it is made, name in $defs, its aliases]
        self.checks: list[tuple[list[str], str, Shape, Any]] = []  #: trail, name, shape, value of what is judged last
        self.later: list[tuple[list[str], Field, Arg, Any]] = []  #: trail, field, its Arg and default, which must wait
        self.level = 0  #: how many annotations the one at hand stands in

    def refuse(self, what: str) -> RegistrationError:
        """Return the fault of the place at hand."""
        place = " in ".join(reversed(self.trail))
        return RegistrationError(f"{self.owner}: {place + ' ' if place else ''}{what}")

    def refuse_note(self, note: Any) -> RegistrationError:
        """Return the fault of an annotation without a JSON form."""
        kind = getattr(note, "__origin__", None) or note
        names = [_shapes_special(kind), type(note).__name__] + [base.__name__ for base in getattr(kind, "__mro__", ())]
        remedy = next((SHAPES_REMEDIES[name] for name in names if name in SHAPES_REMEDIES), SHAPES_REMEDY)
        return self.refuse(f"is annotated {_shapes_cut(note)}, which has no JSON form here; {remedy}")

    def refuse_arg(self, word: str, value: Any, what: str) -> RegistrationError:
        """Return the fault of an attribute of an Arg that has a senseless value."""
        return self.refuse(f"has nk.Arg({word}={_json_show(value)}); give {what}")

    def tried(self, read: Callable[[], Any], what: str, name: str = "") -> Any:
        """Return read(), which runs what the program wrote; @ in what is name.

        Raises: REGISTRATION_ERROR for whatever that raises.
        """
        try:
            return read()
        except RegistrationError:
            raise
        except Exception as error:
            why = _shapes_cut(f"{type(error).__name__}: {error}")
            remedy = SHAPES_TOP_LEVEL if isinstance(error, (NameError, AttributeError)) else "correct it"
            raise self.refuse(f"{what.replace('@', _json_show(name))} ({why}); {remedy}") from error

    def guard(self, build: Callable[[], Shape]) -> Shape:
        """Return build(), complete. Raises: REGISTRATION_ERROR for whatever the classes in annotations raise, too."""
        shape: Shape = self.tried(lambda: self.complete(build()), "has a type that cannot be read")
        return shape

    def resolve(self, note: Any, scope: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return an annotation that is no text any more, and the globals that text inside it stands in."""
        for _ in range(TYPES_LEVELS):
            if isinstance(note, type):
                return note, scope
            if type(note).__name__ == "ForwardRef":
                module = getattr(note, "__forward_module__", None)
                module = sys.modules.get(module) if isinstance(module, str) else module
                scope = scope if module is None else module.__dict__
                note = note.__forward_arg__
            if not isinstance(note, str):
                return note, scope
            text = note
            note = self.tried(lambda: _types_evaluate(text, scope), SHAPES_UNREAD, text)
        raise self.refuse("is annotated with text that stands for itself; name a type")

    def peel(self, note: Any, scope: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Arg], set[str]]:
        """Return (bare annotation, globals, the Args around it, words such as NotRequired around it)."""
        notes: list[Arg] = []
        words: set[str] = set()
        while True:
            note, scope = self.resolve(note, scope)
            word = _shapes_special(getattr(note, "__origin__", None))
            if hasattr(note, "__metadata__"):
                found = [one for one in note.__metadata__ if getattr(one, "__knaif_arg__", False)]
                if any(isinstance(one, type) for one in found):
                    raise self.refuse("has nk.Arg or nk.Opt itself in Annotated; write nk.Arg(...)")
                notes = found + notes
                note = note.__origin__
            elif word in ("Required", "NotRequired", "ReadOnly", "Final"):
                words.add(word)
                note = note.__args__[0]
            elif type(note).__name__ == "TypeAliasType" and note not in self.named:
                alias = note
                value = self.tried(lambda: alias.__value__, SHAPES_UNREAD, alias.__name__)
                if not hasattr(value, "__metadata__"):
                    return note, scope, notes, words
                note, scope = value, _shapes_scope(alias)
            else:
                return note, scope, notes, words

    def shape(self, note: Any, scope: dict[str, Any]) -> Shape:
        """Return the shape of an annotation below a parameter or field. Raises: REGISTRATION_ERROR."""
        note, scope, notes, _ = self.peel(note, scope)
        shape = self.bare(note, scope)
        if not notes:
            return shape
        arg = _shapes_merge(notes)
        _shapes_check_place(self, arg, ("env", "alias", "rest", "default", "example"))
        return _shapes_constrain(self, shape, arg)

    def bare(self, note: Any, scope: dict[str, Any]) -> Shape:
        """Return the shape of an annotation without Annotated around it."""
        if self.level == TYPES_LEVELS:
            raise self.refuse(f"has an annotation of more than {TYPES_LEVELS} levels, or one that stands for itself; "
                              "use a dataclass, a TypedDict or a type statement")
        self.level += 1
        shape = self.bare_of(note, scope)
        self.level -= 1
        return shape

    def bare_of(self, note: Any, scope: dict[str, Any]) -> Shape:
        """Return the shape of an annotation, by what kind of thing it is."""
        try:
            scalar = _types_scalar(type(None) if note is None else note)
        except TypeError:
            raise self.refuse_note(note) from None
        origin = getattr(note, "__origin__", None)
        special = _shapes_special(origin)
        if scalar is not None:
            return scalar
        if hasattr(note, "__supertype__"):
            return self.shape(note.__supertype__, _shapes_scope(note))
        if type(note).__name__ == "TypeAliasType":
            return self.once(note, lambda: self.shape(note.__value__, _shapes_scope(note)))
        if special == "Union" or type(note).__name__ in ("UnionType", "Union"):
            return self.union([self.shape(part, scope) for part in note.__args__], note)
        if special == "Literal":
            return self.literal(note)
        if _shapes_special(note) == "Any":
            return self.bare(object, scope)
        return self.container(note, origin, scope) or self.classes(note, origin)

    def container(self, note: Any, origin: Any, scope: dict[str, Any]) -> Shape | None:
        """Return the shape of a list, set, tuple or dict, with or without its types; None for anything else."""
        kind = note if origin is None else origin
        if getattr(kind, "__module__", None) == "collections.abc":
            kind = SHAPES_ABSTRACT.get(kind.__name__)
        if kind not in (list, set, frozenset, tuple, dict):
            return None
        args = [arg for arg in getattr(note, "__args__", ()) if arg != ()]
        if any(type(arg).__name__ == "TypeVar" for arg in args):
            args = []
        if kind is dict:
            key, item = [self.shape(arg, scope) for arg in args or (str, object)]
            if key.schema != {} and (key.read is not None or _types_kinds(key.schema, self.home) != {"string"}):
                raise self.refuse(f"is annotated {_shapes_cut(note)}, but the keys of a JSON object are text; "
                                  "use dict[str, ...], or a list of pairs")
            return _types_map(key, item)
        bare = origin is None or _shapes_special(note) == "Tuple" and not hasattr(note, "__args__")
        if kind is tuple and args[-1:] != [Ellipsis] and (args or not bare):
            return _types_tuple([self.shape(arg, scope) for arg in args])
        item = self.shape(args[0] if args else object, scope)
        if kind in (set, frozenset) and not item.hashes:
            raise self.refuse(f"is annotated {_shapes_cut(note)}, but {item.word} cannot stand in a set; use list[...]")
        return _types_array(kind, item)

    def literal(self, note: Any) -> Shape:
        """Return the shape of Literal[...]: texts, whole numbers, booleans, None and members of an Enum."""
        pairs = [(value.value if isinstance(value, _types_enum()) else value, value) for value in note.__args__]
        if not all(isinstance(value, (str, int, type(None))) for value, _ in pairs):
            raise self.refuse_note(note)
        word = "one of " + ", ".join(_json_show(value) for value, _ in pairs)
        return _types_choice([(_json_copy(value), thing) for value, thing in pairs], _shapes_cut(word))

    def classes(self, note: Any, origin: Any) -> Shape:
        """Return the shape of a class, of the standard library or of the program."""
        if not isinstance(note, type) or origin is not None:
            raise self.refuse_note(note)
        if issubclass(note, _types_enum()):
            return self.enum(note)
        known = _types_known(note)
        if known is not None:
            return known
        if any(hasattr(note, mark) for mark in ("__dataclass_fields__", "__required_keys__", "_field_defaults")):
            return self.once(note, lambda: _types_object(
                self.members(note, True), dict if hasattr(note, "__required_keys__") else note, f"a {note.__name__}"))
        raise self.refuse_note(note)

    def enum(self, note: Any) -> Shape:
        """Return the shape of an Enum: its values."""
        if issubclass(note, sys.modules["enum"].Flag) or not list(note):
            raise self.refuse_note(note)
        try:
            pairs = [(_json_copy(member.value), member) for member in note]
        except _JsonFault:
            pairs = [([], None)]
        if any(isinstance(value, (list, dict)) for value, _ in pairs):
            raise self.refuse(f"is annotated {_shapes_cut(note)}, which has values that are no JSON scalars; "
                              "give its members text or numbers")
        return _types_choice(pairs, f"a {note.__name__}", note)

    def once(self, key: Any, build: Callable[[], Shape]) -> Shape:
        """Return the shape of a class or alias; inside itself it is a reference into $defs."""
        entry = self.named.get(key)
        if entry is None:
            entry = self.named[key] = [None, "", []]
            shape = build()
            if entry[2]:
                self.home["$defs"][entry[1]] = shape.schema
                shape = shape.copy(schema={"$ref": f"#/$defs/{entry[1]}"}, home=self.home)
            for alias in entry[2]:
                alias.parts.append(shape)
            entry[0] = shape
        if entry[0] is not None:
            return entry[0]  # type: ignore[no-any-return]
        taken = {one[1] for one in self.named.values() if one is not entry}
        while not entry[1] or entry[1] in taken:
            entry[1] = key.__name__ if not entry[1] else entry[1] + "_"

        def read(value: Any) -> Any:
            return value if entry[0].read is None else entry[0].read(value)

        alias = Shape({"$ref": f"#/$defs/{entry[1]}"}, read, lambda value: entry[0].write(value), f"a {key.__name__}",
                      form="alias", parts=[], home=self.home, hashes=False, tight=True)
        entry[2].append(alias)
        return alias

    def union(self, shapes: Sequence[Shape], note: Any) -> Shape:
        """Return the shape of a union. Raises: REGISTRATION_ERROR where JSON cannot tell its branches apart."""
        kept: list[Shape] = []
        for shape in shapes:
            inner = shape.form == "union" and len(shape.schema) == 1 and not shape.marks
            for branch in shape.parts if inner else [shape]:
                if branch.schema == {}:
                    return branch
                if branch.rank or not any(other.rank == 0 for other in kept):
                    kept.append(branch)
        for index, shape in enumerate(kept):
            for other in kept[:index]:
                if _shapes_are_alike(shape, other):
                    raise self.refuse(f"is annotated {_shapes_cut(note)}, but JSON cannot tell {other.word} from "
                                      f"{shape.word}; keep one of them")
        return kept[0] if len(kept) == 1 else _types_union(kept, self.home)

    def members(self, note: Any, nested: bool) -> list[Field]:
        """Return the fields of a dataclass, a TypedDict or a NamedTuple; nested: not those of application options."""
        typed_dict = hasattr(note, "__required_keys__")
        self.trail.append(note.__qualname__)
        if hasattr(note, "__dataclass_fields__"):
            found = self.dataclass_members(note)
        elif typed_dict:
            scope, keys, hints = _shapes_scope(note), note.__required_keys__, self.hints(note)
            found = [(name, hint, scope, TYPES_ABSENT, name not in keys) for name, hint in hints.items()]
        else:
            base = next(base for base in note.__mro__ if "_field_defaults" in base.__dict__)
            annotated = "__annotations__" in base.__dict__ or hasattr(base, "__annotate__")
            scope, hints = _shapes_scope(base), self.hints(base) if annotated else {}
            if set(hints) != set(note._fields):
                raise self.refuse("is a namedtuple without annotations; use typing.NamedTuple or a dataclass")
            defaults = base._field_defaults
            found = [(name, hints[name], scope, defaults.get(name, TYPES_ABSENT), False) for name in note._fields]
        self.trail.pop()
        fields = []
        for name, hint, scope, default, optional in found:
            self.trail.append(f'the field "{name}" of {note.__qualname__}')
            made = self.field(name, hint, scope, default, nested=nested, optional=optional, typed_dict=typed_dict)
            if optional and not typed_dict:
                factory = note.__dataclass_fields__[name].default_factory
                made.factory = factory if factory not in (list, dict, set, frozenset, tuple) else None
            fields.append(made)
            self.trail.pop()
        return fields

    def dataclass_members(self, note: Any) -> list[tuple[str, Any, dict[str, Any], Any, bool]]:
        """Return (name, annotation, globals, default, optional) of the fields that a dataclass takes, or shows."""
        found = []
        if not note.__dataclass_params__.init and not self.output:
            raise self.refuse("is a dataclass with init=False, which no JSON can make; let it have its constructor")
        for name, field in note.__dataclass_fields__.items():
            kind, default, factory = field._field_type.name, field.default, field.default_factory
            if kind == "_FIELD_INITVAR":
                raise self.refuse(f"has the InitVar {_json_show(name)}, which has no place in JSON; make it a field")
            if kind == "_FIELD_CLASSVAR" or not field.init and not self.output:
                continue
            optional = type(factory).__name__ != "_MISSING_TYPE"
            if type(default).__name__ == "_MISSING_TYPE":
                about = "has the default_factory of @, which fails"
                default = self.tried(factory, about, name) if optional and not self.output else TYPES_ABSENT
            owner = next(base for base in reversed(note.__mro__)
                         if base.__dict__.get("__dataclass_fields__", {}).get(name) is field)
            found.append((name, field.type, _shapes_scope(owner), default, optional))
        return found

    def hints(self, thing: Any) -> dict[str, Any]:
        """Return the annotations of a function or class. Raises: REGISTRATION_ERROR."""
        made: dict[str, Any] = self.tried(lambda: _types_hints(thing), "has annotations that cannot be evaluated")
        return made

    def field(
        self, name: str, note: Any, scope: dict[str, Any], default: Any, *, nested: bool = False,
        optional: bool = False, typed_dict: bool = False, star: bool = False, override: Arg | None = None,
    ) -> Field:
        """Return the field at hand.

        default: Python's. optional: it may be left out without a default that JSON shows. star: it stands for *args.
        """
        note, scope, notes, words = self.peel(note, scope)
        if override is not None and notes:
            raise self.refuse("is described both by args= and by its annotation; keep one of them")
        arg = _shapes_merge(notes if override is None else [override])
        shape = self.bare(note, scope)
        if notes or override is not None:
            shape = _shapes_constrain(self, shape, arg)
            _shapes_check_arg(self, arg, nested, shape if not star else None)
        field = Field(name, shape.schema, shape=shape)
        field.dashed = True
        field.help = shape.schema.get("description", "")
        field.env, field.alias, field.rest, field.secret = arg.env, arg.alias, arg.rest, "secret" in shape.marks
        if not typed_dict and not words.isdisjoint(("Required", "NotRequired")):
            raise self.refuse("is annotated Required or NotRequired, which a TypedDict alone has; use nk.Arg or nk.Opt")
        optional = optional and "Required" not in words or "NotRequired" in words
        if self.output:
            field.required = not (typed_dict and optional)
            return field
        optional = optional or typed_dict and arg.optional
        own = not _types_is_absent(arg.default)
        if own and default is not TYPES_ABSENT:
            raise self.refuse("has two defaults, one of nk.Opt and one of Python; keep one of them")
        field.required = not optional and not arg.optional and default is TYPES_ABSENT
        default = arg.default if own else default
        if default is not TYPES_ABSENT or _types_given(arg, ("example",)):
            field.schema = dict(field.schema)
            self.later.append((self.trail[:], field, arg, default))
        elif arg.optional and not optional:
            if "null" not in _types_kinds(shape.schema, self.home):
                raise self.refuse("may be left out (nk.Opt) and has no default; "
                                  "give it one, or annotate it Optional[...]")
            field.default = None
        return field

    def set_values(self, field: Field, arg: Arg, default: Any) -> None:
        """Fill in default and example of a field, once every class is known; schemas show none with a secret in it."""
        shape: Any = field.shape
        hidden = shape.has_role("secret")
        if default is not TYPES_ABSENT:
            field.default = self.value(shape, default, "default", hidden)
            if field.factory is not None:
                field.shape = shape.copy(home=self.home)
            elif not shape.locate(field.default, "secret"):
                field.schema["default"] = field.default
        if _types_given(arg, ("example",)):
            field.example = self.value(shape, arg.example, "example", hidden)
            if not shape.locate(field.example, "secret"):
                field.schema["examples"] = [field.example]

    def value(self, shape: Any, value: Any, what: str, secret: bool = False) -> Any:
        """Return the JSON form of a default, choice or example; only the last may be given as JSON.

        Raises: REGISTRATION_ERROR, now or, for what bounds say about it, from complete().
        """

        def shown() -> str:
            return what if secret else f"{what} {_json_show(value)}"

        try:
            made = value if what == "example" and isinstance(value, str) else shape.to_json(value)
            if made and isinstance(made, (list, dict)) or isinstance(made, str) and not made.isascii():
                _json_write(made).encode("utf-8")
        except (_JsonFault, UnicodeEncodeError) as fault:
            why = fault.reason if isinstance(fault, _JsonFault) else "a lone surrogate"
            raise self.refuse(f"has the {shown()}, which no JSON can hold: {why}; give it another") from None
        except _TypesFault as fault:
            place = f" at {_json_pointer(fault.path)}" if fault.path else ""
            remedy = "annotate it Optional[...] or give it another" if value is None else "give it another"
            raise self.refuse(f"has the {shown()}, which does not fit{place}: {fault.message}; {remedy}") from None
        if shape.tight or what == "example":
            self.checks.append((self.trail[:], shown(), shape, made))
        return made

    def complete(self, shape: Shape) -> Shape:
        """Return the shape with the definitions it refers to, once every default, example and choice is valid."""
        for self.trail, field, arg, default in self.later:
            self.set_values(field, arg, default)
        for self.trail, field, _, _ in self.later:
            shape_of_it: Any = field.shape
            try:
                _types_complete(shape_of_it, field.default)
            except (RecursionError, _TypesFault) as fault:
                why = fault.message if isinstance(fault, _TypesFault) else "holds itself without end"
                raise self.refuse(f"has a default that {why}; give it another") from None
        for self.trail, what, part, value in self.checks:
            issues = part.copy(home=self.home).issues(value)
            if issues:
                raise self.refuse(f"has the {what}, which does not fit: {issues[0].message}; give it another")
        return shape.copy(schema=dict(shape.schema, **self.home), home=None) if self.home["$defs"] else shape


# What an Arg says about values


def _shapes_check_place(compiler: _ShapesCompiler, arg: Arg, words: Sequence[str]) -> None:
    """Refuse what an Arg inside a type says about a parameter. Raises: REGISTRATION_ERROR."""
    for word in _types_given(arg, words):
        raise compiler.refuse(f"has an nk.Arg with {word}= inside its type; move it to the parameter itself")


def _shapes_check_arg(compiler: _ShapesCompiler, arg: Arg, nested: bool, shape: Shape | None) -> None:
    """Check what an Arg says about a parameter rather than its value; shape: None for *args."""
    _shapes_check_place(compiler, arg, ("env", "alias", "rest") if nested else ())
    env, alias = arg.env, arg.alias
    if not isinstance(arg.help, str):
        raise compiler.refuse_arg("help", arg.help, "one sentence of text")
    if env is not None and (not isinstance(env, str) or not env or "=" in env or "\0" in env):
        raise compiler.refuse_arg("env", env, "the name of an environment variable")
    if alias is not None and not (isinstance(alias, str) and len(alias) == 1 and alias.isascii() and alias.isalpha()
                                  and alias != "h"):
        raise compiler.refuse_arg("alias", alias, "one ASCII letter other than h")
    if arg.rest and shape is not None and _types_kinds(shape.schema, compiler.home) - {"null"} != {"array"}:
        raise compiler.refuse(f"has nk.Arg(rest=True), but takes {shape.word}; make it a list[str]")


def _shapes_constrain(compiler: _ShapesCompiler, shape: Shape, arg: Arg) -> Shape:
    """Return a shape with what an Arg says about its values. Raises: REGISTRATION_ERROR where that makes no sense."""
    if not _types_given(arg, ("choices", "pattern", "min", "max", "help", "path", "secret")):
        return shape
    choices, pattern = arg.choices, arg.pattern
    inner = Arg(choices=choices, pattern=pattern)
    if shape.form == "union":
        inner.min, inner.max = arg.min, arg.max
        shape = _shapes_constrain_union(compiler, shape, inner)
    else:
        if shape.form == "array":
            items = _shapes_constrain(compiler, shape.parts[0], inner)
            made = _types_array(shape.make, items)
            tight = made.tight or shape.tight
            shape = made.copy(schema=dict(shape.schema, **made.schema), marks=shape.marks, tight=tight)
            choices = pattern = None
        shape = shape.copy(schema=dict(shape.schema))
        if arg.min is not None or arg.max is not None:
            _shapes_bound(compiler, shape, arg.min, arg.max)
        if pattern is not None:
            _shapes_match(compiler, shape, pattern)
        if choices is not None:
            _shapes_choose(compiler, shape, choices)
    if arg.path and not _shapes_has_text(shape):
        raise compiler.refuse(f"has nk.Arg(path=True), but takes {shape.word}; annotate it str or pathlib.Path")
    shape.marks |= frozenset(word for word in ("path", "secret") if getattr(arg, word))
    if isinstance(arg.help, str) and arg.help:
        shape.schema["description"] = arg.help
    return shape


def _shapes_constrain_union(compiler: _ShapesCompiler, shape: Shape, arg: Arg) -> Shape:
    """Return a union with its one branch besides null bounded; among several the bound could mean any."""
    branches = [branch for branch in shape.parts if branch.rank]
    if not _types_given(arg, ("choices", "pattern", "min", "max")):
        return shape.copy(schema=dict(shape.schema))
    if len(branches) > 1:
        raise compiler.refuse(f"has an nk.Arg that could bound {' or '.join(branch.word for branch in branches)}; "
                          "put Annotated[...] inside the union")
    parts = [_shapes_constrain(compiler, part, arg) if part.rank else part for part in shape.parts]
    union = _types_union(parts, compiler.home)
    return union.copy(schema=dict(shape.schema, **union.schema), marks=shape.marks)


def _shapes_choose(compiler: _ShapesCompiler, shape: Shape, choices: Any) -> None:
    """Limit a shape to these values."""
    if not isinstance(choices, (list, tuple, set, frozenset, range)) or not choices:
        raise compiler.refuse_arg("choices", choices, "a list of values")
    if shape.form != "leaf":
        raise compiler.refuse(f"has nk.Arg(choices=...), but takes {shape.word}; choices are for text and numbers")
    shape.tight = True
    shape.schema["enum"] = [compiler.value(shape, choice, "choice") for choice in choices]


def _shapes_match(compiler: _ShapesCompiler, shape: Shape, pattern: Any) -> None:
    """Limit text to a pattern."""
    if shape.measure != "length":
        raise compiler.refuse(f"has nk.Arg(pattern=...), but takes {shape.word}; a pattern is for text")
    try:
        _format_pattern(pattern if isinstance(pattern, str) else "(")
    except ValueError:
        raise compiler.refuse_arg("pattern", pattern, "an ECMA-262 pattern") from None
    shape.tight = True
    shape.schema["pattern"] = pattern


def _shapes_bound(compiler: _ShapesCompiler, shape: Shape, least: Any, most: Any) -> None:
    """Limit a number, a length or a count."""
    if shape.measure is None:
        raise compiler.refuse(f"has nk.Arg with min or max, but takes {shape.word}, which has no size to bound; "
                              "leave them out")
    counted = shape.measure not in ("number", "decimal")
    pairs = (("min", least), ("max", most))
    for word, value in pairs:
        exact = shape.measure == "decimal" and isinstance(value, shape.make) and value.is_finite()
        number = isinstance(value, int if counted else (int, float)) and not isinstance(value, bool)
        if value is not None and not exact and (not number or value - value != 0 or counted and value < 0):
            raise compiler.refuse_arg(word, value, "a count of 0 or more" if counted else "a number")
    if least is not None and most is not None and least > most:
        shown = f"min={_json_show(least)}, max={_json_show(most)}"
        raise compiler.refuse(f"has nk.Arg({shown}), which leaves no value; exchange them")
    if shape.measure in ("decimal", "bytes"):
        shape.read = _shapes_bounded(shape, least, most)
    end = TYPES_BOUNDS[shape.measure]
    for word, value in pairs:
        if value is not None:
            value = -(-value // 3) * 4 if shape.measure == "bytes" else value
            shape.schema[word + end] = value if isinstance(value, (int, float)) else float(value)
    shape.tight = True


# Functions, options and raw schemas


def _shapes_parameters(function: Any) -> tuple[str, ...]:
    """Return the names of all parameters, *args and **kwargs last, without evaluating an annotation. Pure."""
    code = function.__code__
    stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars])


def _shapes_passed(function: Any) -> tuple[tuple[str, ...], tuple[str, ...], str | None, str | None]:
    """Return the parameters passed by place, those by keyword, the name of *args and that of **kwargs. Pure."""
    code, names = function.__code__, _shapes_parameters(function)
    count = code.co_argcount + code.co_kwonlyargcount
    stars = list(names[count:])
    star = stars.pop(0) if code.co_flags & 4 else None
    return names[: code.co_argcount], names[code.co_argcount : count], star, stars.pop() if stars else None


def _shapes_signature(
    function: Any, *, owner: str, extra_args: Mapping[str, Arg] | None = None, context_type: Any = None,
    bound: bool = False, raw: bool = False,
) -> tuple[Any, list[Field], Shape | None, bool, str | None, str | None, Any]:
    """Return what a function takes and returns, in this order.

    The shape of all arguments, a closed object; their fields as declared, *args and **kwargs last; the shape of the
    result, None without an annotation, and whether that is None; the parameter that gets the context; the name of
    **kwargs; a function that makes the arguments of a call, by place and by keyword, from typed values and a context.
    extra_args: Arg objects by parameter. context_type: the class that marks the context. bound: the first parameter is
    filled already. raw: the parameters are described by a schema, the result alone counts.
    Raises: REGISTRATION_ERROR, naming function and parameter, for what has no JSON form.
    """
    compiler = _ShapesCompiler(owner)
    hints = compiler.hints(function)
    fields: list[Field] = []
    taken: Any = None
    context = more = bind = output = None
    if not raw:
        taken = compiler.guard(lambda: _shapes_add_parameters(
            fields, compiler, function, hints, extra_args or {}, context_type, bound))
        _shapes_find_paths(fields)
        context, more, bind = _shapes_binder(function, fields, bound)
    nothing = "return" in hints
    if nothing:
        result = _ShapesCompiler(owner, True)
        result.trail.append("the result")
        note, scope = result.resolve(hints["return"], function.__globals__)
        nothing = note is None or note is type(None)
        output = result.guard(lambda: result.shape(note, scope))
    return taken, fields, output, nothing, context, more, bind


def _shapes_binder(function: Any, fields: Sequence[Field], bound: bool) -> tuple[str | None, str | None, Any]:
    """Return the last three things of _shapes_signature."""
    placed, named, star, more = _shapes_passed(function)
    placed = placed[1:] if bound else placed
    names = {field.name for field in fields}
    context = next((name for name in placed + named if name not in names), None)

    def bind(values: Mapping[str, Any], ctx: Any) -> tuple[list[Any], dict[str, Any]]:
        if context is not None:
            values = {**values, context: ctx}
        args = [*map(values.__getitem__, placed)]
        kwargs = {name: values[name] for name in named} if named else {}
        if star is not None:
            args += values.get(star, ())
        if more is not None:
            kwargs.update(values.get(more, ()))
        return args, kwargs

    return context, more, bind


def _shapes_find_paths(fields: Sequence[Field]) -> None:
    """Mark the fields that hold paths, once their shapes are whole."""
    for field in fields:
        field.path = field.shape is not None and field.shape.has_role("path")


def _shapes_add_parameters(
    fields: list[Field], compiler: _ShapesCompiler, function: Any, hints: Mapping[str, Any], extra: Mapping[str, Arg],
    context_type: Any, bound: bool,
) -> Shape:
    """Add the fields of the parameters, all but the context; return the shape of all arguments."""
    placed, named, arguments, more = _shapes_passed(function)
    names, context = _shapes_parameters(function), False
    defaults = dict(zip(placed[::-1], (function.__defaults__ or ())[::-1]), **(function.__kwdefaults__ or {}))
    for name, arg in extra.items():
        if name not in names or not getattr(arg, "__knaif_arg__", False) or isinstance(arg, type):
            raise compiler.refuse(f"args[{_json_show(str(name))}] is no nk.Arg(...) of a parameter; "
                                  f"the parameters are {', '.join(names) or 'none'}")
    for name in names[1 if bound else 0 :]:
        compiler.trail = [f'the parameter "{name}"']
        star = name in (arguments, more)
        if name not in hints and name != more:
            raise compiler.refuse(f"has no annotation; write {name}: str, or {name}: object for any JSON value")
        note, scope = compiler.resolve(hints.get(name, object), function.__globals__)
        if context_type is not None and note is context_type:
            if context or star:
                raise compiler.refuse("is annotated as the context, which a function takes once, under a name")
            context = True
            continue
        default = defaults.get(name, TYPES_ABSENT)
        field = compiler.field(name, note, scope, default, star=star, override=extra.get(name))
        if star:
            _shapes_collect(field, name == arguments, compiler, names)
        field.option_only = name in named or name == more
        fields.append(field)
    compiler.trail = []
    return _types_object(fields, dict, "an object")


def _shapes_collect(field: Field, star: bool, compiler: _ShapesCompiler, names: Sequence[str]) -> None:
    """Turn the field of one item into that of *args, or of **kwargs."""
    item: Any = field.shape
    if not field.required:
        raise compiler.refuse("collects what is left over and is empty without it; use nk.Arg in the place of nk.Opt")
    shape = _types_array(tuple, item) if star else _types_map(compiler.shape(str, {}), item)
    if not star:
        shape.schema["propertyNames"] = {"not": {"enum": list(names)}}
    field.shape, field.variadic, field.required = shape, star, False
    field.schema = dict(shape.schema, description=field.help) if field.help else shape.schema


def _shapes_raw(schema: Any, owner: str) -> Shape:
    """Return the shape of a raw JSON Schema: values are JSON on both sides, formats are judged if it asks for that.

    Raises: REGISTRATION_ERROR for a faulty schema, here and at once, so that nothing reads by it.
    """
    if not isinstance(schema, (dict, bool)):
        raise RegistrationError(f"{owner}: a JSON Schema is a dict, not a {type(schema).__name__}")
    try:
        shape = Shape(_json_copy(schema), _json_copy, _types_write_free, "a JSON value", asserts=False)
        shape.takes(None)
    except _JsonFault as fault:
        raise RegistrationError(f"{owner}: the schema is no JSON, for it holds {fault}") from None
    except RegistrationError as error:
        raise RegistrationError(f"{owner}: {error.message}") from None
    return shape


def _shapes_from_schema(schema: Any, *, owner: str) -> tuple[Shape, list[Field]]:
    """Return the shape of a raw input schema and its fields, those of references and compositions too.

    A name that members describe differently is a boolean if one of them says so, else mixed.
    Raises: REGISTRATION_ERROR for a schema that no object fits, and for a default that does not fit.
    """
    shape = _shapes_raw(schema, owner)
    schema = shape.schema
    leaves = [leaf for leaf in _types_leaves(schema, schema) if "object" in _types_leaf_kinds(leaf)]
    if not leaves:
        raise RegistrationError(f"{owner}: no object fits the input schema; describe the arguments as its properties")
    members: dict[str, list[Any]] = {}
    for leaf in leaves:
        for name, part in (leaf.get("properties") or {}).items():
            members.setdefault(name, []).append(part)
    required = set.intersection(*(set(leaf.get("required") or ()) for leaf in leaves))
    fields = []
    for name, parts in members.items():
        flags = [part for part in parts if _types_kinds(part, schema) - {"null"} == {"boolean"}]
        field = Field(name, flags[0] if flags else _types_one_of(parts))
        field.required = name in required
        about = _schema_resolve(field.schema, schema)
        about = about if isinstance(about, dict) else {}
        field.default = about.get("default", TYPES_ABSENT)
        field.help = about["description"] if isinstance(about.get("description"), str) else ""
        field.example = next(iter(about["examples"]), None) if isinstance(about.get("examples"), list) else None
        fields.append(field)
    defaults = {field.name: field.default for field in fields if field.default is not TYPES_ABSENT}
    for issue in shape.issues(defaults) if defaults else ():
        if issue.location and issue.location[0] in defaults:
            name = _json_show(issue.location[0])
            raise RegistrationError(f"{owner}: the default of {name} does not fit its own schema: {issue.message}")
    return shape, fields


def _shapes_options(spec: Any, owner: str) -> tuple[Shape, list[Field], Callable[[Any], Any]]:
    """Return (shape, fields, JSON -> what handlers see) of options: of a dataclass, a TypedDict or a schema."""
    fields: list[Field] = []
    compiler = _ShapesCompiler(owner)

    def build() -> Shape:
        marks = ("__dataclass_fields__", "__required_keys__")
        if not isinstance(spec, type) or not any(hasattr(spec, mark) for mark in marks):
            raise RegistrationError(f"{owner}: global_options is {_shapes_cut(spec)}; "
                                    "give a dataclass, a TypedDict or a JSON Schema")
        fields.extend(compiler.members(spec, False))
        return _types_object(fields, dict if hasattr(spec, "__required_keys__") else spec, f"a {spec.__name__}")

    if isinstance(spec, dict):
        shape, fields = _shapes_from_schema(spec, owner=owner)
    else:
        shape = compiler.guard(build)
    _shapes_find_paths(fields)
    for field in fields:
        field.option_only = True
    return shape, fields, lambda given: shape.to_python(shape.complete(given))


def schema_of(annotation: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation, as a parameter of that type has it. Pure.

    Raises: REGISTRATION_ERROR for a type that has no JSON form.

    >>> schema_of(int)
    {'type': 'integer'}
    """
    compiler = _ShapesCompiler("schema_of")
    compiler.trail.append("the type")
    return dict(compiler.guard(lambda: compiler.shape(annotation, _shapes_scope(annotation))).schema)
# endregion SHAPES


# region REG -- Command, Call, Outcome, Ctx, Service, command, native, the table of framework options, Registry, names
# needs: LIMITS ERRORS JSON ENV PATHS TYPES SHAPES
# A decorator only records what it was given, as plain data on the function itself, so that copies of this module under
# other names agree. At the start of a program every record becomes a Command. What is checked then is cheap and comes
# from __code__ and the written annotations: names, flags, surfaces, reserved names. Schemas are made when they are
# first needed. A fault is a RegistrationError: one sentence with the function, the parameter and the remedy.
#
#     surface   who calls: cli (a person or a script), agent (a plan), mcp (an MCP client)
#     managed   has an identity (service, action, scope), a lifecycle and hooks; stands on any surface
#     native    belongs to this executable: cli alone, no identity, no lifecycle

REG_SURFACES = ("cli", "agent", "mcp")
REG_DEFAULT_EXPOSE = ("agent", "mcp")  # nothing is a shell command until it says so
REG_CLI = frozenset(("cli",))

#: The options that every program has, in the order of help: name, kind, metavar, help.
REG_OPTIONS = (
    ("json", "boolean", "", "print the result or the refusal as one line of JSON"),
    ("wait", "boolean", "", "wait until an asynchronous result is final"),
    ("wait-timeout", "value", "<s>", "give up waiting after so many seconds"),
    ("output-dir", "value", "<dir>", "save the files of the result in this folder"),
    ("quiet", "boolean", "", "write nothing on stderr but refusals"),
    ("dry-run", "boolean", "", "show the checked call and do not run it"),
    ("yes", "boolean", "", "confirm a destructive command"),
    ("help", "boolean", "", "show this help; --help <text> lists the commands that match"),
    ("version", "boolean", "", "show the version"),
    ("count-by", "value", "<field>", "count the records of each value"),
    ("sum", "value", "<field>", "add up a numeric field"),
    ("by", "value", "<field>", "group --sum or --top by this field"),
    ("sort", "value", "<field>", "order the records, largest first"),
    ("ascending", "boolean", "", "with --sort: smallest first"),
    ("top", "value", "<n>", "keep the first n; needs --count-by, --by, --sort or --table"),
    ("table", "value", "<a,b>", "show these fields as a table"),
)

#: What no parameter may be called, written with -: these options but --version, and what Ctx alone carries.
REG_RESERVED_FIELDS = frozenset(tuple(zip(*REG_OPTIONS))[0]) - {"version"} | {"confirmed"}

#: What a Command, command() and native() can be given: option -> what its value must be, a key of REG_VALUES.
REG_COMMAND_OPTIONS = {
    "name": "text", "help": "text", "keywords": "a list of texts", "expose": "a list of cli, agent and mcp",
    "destructive": "True or False", "readonly": "True or False", "idempotent": "True or False", "scope": "text",
    "returns": "a JSON Schema", "previews": "True or False", "hidden": "True or False", "examples": "a list of texts",
    "args": "a dict of Arg by parameter", "input": "a JSON Schema as a dict", "native": "True or False",
    "present": "a function of the result", "exit_code": "a function of the result", "service": "text",
    "action": "text", "remote": "True or False", "lines": "True or False",
}
#: What a value must be -> its types; () is whatever can be called.
REG_VALUES: dict[str, Any] = {
    "text": str, "True or False": bool, "a list of texts": (list, tuple), "a function of the result": (),
    "a list of cli, agent and mcp": (list, tuple, set, frozenset), "a JSON Schema": (dict, bool),
    "a JSON Schema as a dict": dict, "a dict of Arg by parameter": dict,
}

REG_NAME_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
REG_GENERATOR_FLAGS = 0x220  # CO_GENERATOR and CO_ASYNC_GENERATOR
REG_STAR_FLAGS = 0x0C  # CO_VARARGS and CO_VARKEYWORDS
REG_COMPOSING_WORDS = frozenset(("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef"))  # a schema's fields hide in these

#: The attributes of Command that are made by the first look at one of them.
REG_COMPILED = ("input", "fields", "output", "prints", "passthrough", "open_names", "takes_context", "_bind")

#: Words that look like plurals and are none.
REG_SINGULAR_WORDS = (
    "analytics aws canvas css diagnostics dns gas https kubernetes lens logistics news ops os physics s series "
    "settings sms species statistics stats tls"
)
#: Ends of plurals, each with that of its singular, the first that fits counts; _ is the beginning of a word.
REG_PLURAL_ENDS = (
    "_analyses _analysis _caches _cache _children _child _cookies _cookie _indices _index _lenses _lens "
    "_matrices _matrix _menus _menu _movies _movie _people _person _quizzes _quiz _shelves _shelf _vertices _vertex "
    "_dies _die _lies _lie _pies _pie _ties _tie ies y ouses ouse auses ause sses ss shes sh ches ch xes x zzes zz "
    "uses us iases ias ss ss us us is is"
)


class Options:
    """The framework options of one command line, all off unless given."""

    json = False  #: one compact line instead of two-space JSON
    wait = False  #: poll until the result is final
    wait_timeout: float | None = None  #: seconds
    output_dir: str | None = None  #: where the files of the result go
    quiet = False  #: nothing on stderr but refusals
    dry_run = False  #: show the call only
    yes = False  #: destructive commands are confirmed
    help: str | None = None  #: None: not asked; "": this help; else what to search for
    version = False  #: show the version
    count_by: str | None = None  #: field whose values are counted
    sum: str | None = None  #: field that is added up
    by: str | None = None  #: field that groups
    sort: str | None = None  #: field that orders
    ascending = False  #: smallest first
    top: int | None = None  #: how many are kept
    table: tuple[str, ...] = ()  #: fields of the table

    def __init__(self, **given: Any) -> None:
        for name in given:
            getattr(self, name)  # an AttributeError names what does not exist
        self.__dict__.update(given)


class Cancel:
    """The caller's signal to stop: ``app.run(cancel=signal)``. Any thread may call cancel(); the first reason stays."""

    reason: object = None  #: what cancel() was given; it stays inside the process and never enters a message

    def cancel(self, reason: object = None) -> None:
        """Ask the call to stop. A second call changes nothing."""
        self.__dict__.setdefault("reason", reason)  # one atomic step, so that no lock is needed

    @property
    def cancelled(self) -> bool:
        """Whether cancel() was called."""
        return "reason" in self.__dict__

    def check(self) -> None:
        """Return while nobody has cancelled. Raises: REQUEST_ABORTED."""
        if self.cancelled:
            raise Error("REQUEST_ABORTED", "the call was cancelled by its caller")


class Call:
    """One call, from whatever surface it came: what ARGV, STREAM, PLAN and SERVER make and the engine runs."""

    __slots__ = ("command", "args", "reading", "surface", "id", "source", "dry_run", "cancel", "deadline")

    def __init__(
        self, command: Command, args: dict[str, Any], *, reading: str = "EXACT", surface: str = "cli",
        id: str | int | None = None, source: str | None = None, dry_run: bool = False, cancel: Cancel | None = None,
        deadline: float | None = None,
    ) -> None:
        self.command = command  #: what is called
        self.args = args  #: JSON object as it arrived
        self.reading = reading  #: MODEL (text is read where the schema wants more) or EXACT (nothing is read)
        self.surface = surface  #: one of REG_SURFACES
        self.id = id  #: the line's or request's id, None where there is none
        self.source = source  #: where the call stands, for messages: a line number, a step
        self.dry_run = dry_run  #: admit, then stop
        self.cancel = cancel  #: the caller's signal
        self.deadline = deadline  #: monotonic second at which the call is given up


class Outcome:
    """How a call ended. ``ok`` with ``data``, or an ``error``; always with the exit code a printed call would have."""

    __slots__ = ("ok", "data", "error", "exit_code", "entered", "returned", "written", "digest", "result")

    def __init__(
        self, ok: bool, *, data: Any = None, error: Error | None = None, exit_code: int = 0, entered: bool = False,
        returned: bool = False, written: dict[str, str] | None = None, digest: str | None = None, result: Any = None,
    ) -> None:
        self.ok = ok  #: whether the call succeeded
        self.data = data  #: the result as JSON
        self.error = error  #: the refusal, None on success
        self.exit_code = exit_code  #: 0 to 255
        self.entered = entered  #: whether the handler was reached
        self.returned = returned  #: whether the handler came to its end: a failure after that is none of its own
        self.written = written  #: what the handler wrote to ctx.stdout and ctx.stderr, None where nothing
        self.digest = digest  #: digest of the admitted call where one was computed
        self.result = result  #: what the handler returned, before it became JSON

    def __repr__(self) -> str:
        how = f"{self.error.code}: {self.error.message}" if self.error is not None else "ok" if self.ok else "not ok"
        return f"<Outcome {how}, exit {self.exit_code}>"

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of an answer: ok, exitCode, data or error, and written where something was. Pure."""
        answer = {"data": self.data} if self.error is None else {"error": self.error.to_wire()}
        written = {"written": self.written} if self.written else {}
        return {"ok": self.ok, "exitCode": self.exit_code, **answer, **written}


class Ctx:
    """What a handler knows of its call: annotate a parameter with it, ``def purge(before: date, ctx: nk.Ctx)``.

    Everything has a default, so that a test can call the function with ``nk.Ctx(dry_run=True)``. The file functions
    work below the application's sandbox and nowhere else; without one they refuse with FORBIDDEN.
    """

    __knaif_ctx__ = True  # how another copy of this module knows the class
    _stdout: Any = None  # see stdout
    _stderr: Any = None  # see stderr
    _drawn = 0  # characters of the bar that stands on the terminal
    _drawn_at = 0.0  # when it was drawn

    def __init__(
        self, *, app: Any = None, command: Any = None, call_id: str | int | None = None, surface: str = "cli",
        identity: Any = None, context: Any = None, globals: Any = None, options: Options | None = None,
        profile: Any = None, confirmed: bool = False, dry_run: bool = False, cancel: Cancel | None = None,
        stdout: Any = None, stderr: Any = None, env: Env | None = None, sandbox: Sandbox | None = None,
        engine: Any = None, capture: bool = False,
    ) -> None:
        self.app = app  #: the application
        self.command = command  #: the Command that is called
        self.call_id = call_id  #: the line's id, from which an idempotency key can be derived; None elsewhere
        self.surface = surface  #: cli, agent or mcp
        self.identity = identity  #: what resolve_auth returned; None for native commands
        self.context = context  #: what the application's context function returned
        self.globals = globals  #: the application's global options
        self.options = options or Options()  #: the framework's options
        self.confirmed = confirmed  #: whether this very call was approved
        self.dry_run = dry_run  #: show what would be done, do nothing
        self.cancel = cancel or Cancel()  #: the caller's signal
        if not capture:
            self._stdout, self._stderr = stdout, stderr
        self._env, self._sandbox, self._engine, self._profile = env, sandbox, engine, profile

    @property
    def stdout(self) -> Any:
        """The text stream that belongs to the call."""
        return self._stream("_stdout")

    @property
    def stderr(self) -> Any:
        """The text stream for remarks."""
        return self._stream("_stderr")

    def _stream(self, name: str) -> Any:
        """Return a stream; of a captured call one that keeps what is written, made when something looks at it."""
        if name not in self.__dict__:
            from io import StringIO

            self.__dict__.setdefault(name, StringIO())  # one atomic step, so that threads share it
        return self.__dict__[name]

    @property
    def profile(self) -> Any:
        """The Profile this call works with: its name, value and source. None where the program has no profiles.

        A native command finds it at its first look. Raises: NOT_FOUND, BAD_REQUEST, FORBIDDEN as ProfileStore.resolve.
        """
        return self._profile if self._engine is None else self._engine.profile

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Show how far the call is, as a bar on stderr where that is a terminal and --quiet is not given.

        total None: only the count is shown. The line ends when done reaches total. Reads clock; writes stderr.
        """
        env = self._env
        if env is None or self.options.quiet or not env.is_terminal("stderr"):
            return
        now, finished = env.clock(), total is not None and done >= total
        if self._drawn and not finished and 0 <= now - self._drawn_at < REG_PROGRESS_PAUSE_SECONDS:
            return
        line = env.human(_reg_progress_line(done, total, note), limit=REG_PROGRESS_LINE_CHARACTERS)
        env.write_err("\r" + line.ljust(self._drawn))
        self._drawn, self._drawn_at = len(line), now
        if finished:
            self.end_progress()

    def end_progress(self) -> None:
        """End the line of a bar that never reached its total, so that what follows starts on a line of its own."""
        if self._drawn and self._env is not None:
            self._env.write_err("\n")
            self._drawn = 0

    def open(self, path: Any, mode: str = "r", **options: Any) -> Any:
        """Open a file below the sandbox as the built-in open does, but walked to without following links.

        options: buffering, encoding (by default UTF-8), errors, newline. Raises: SANDBOX_ESCAPE, FORBIDDEN, OSError.
        """
        return self._below("open", path, mode, **options)

    def unlink(self, path: Any) -> None:
        """Remove a file below the sandbox. Raises: SANDBOX_ESCAPE, FORBIDDEN, OSError."""
        self._below("unlink", path)

    def rename(self, source: Any, target: Any) -> None:
        """Rename within the sandbox. Raises: SANDBOX_ESCAPE, FORBIDDEN, OSError."""
        self._below("rename", source, target)

    def mkdir(self, path: Any) -> None:
        """Make a folder below the sandbox. Raises: SANDBOX_ESCAPE, FORBIDDEN, OSError."""
        self._below("mkdir", path)

    def listdir(self, path: Any = ".") -> list[str]:
        """Return the sorted names in a folder below the sandbox. Raises: SANDBOX_ESCAPE, FORBIDDEN, OSError."""
        return list(self._below("listdir", path))

    def _below(self, verb: str, *texts: Any, **options: Any) -> Any:
        if self._sandbox is None:
            raise Error("FORBIDDEN", f"ctx.{verb} works below the application's sandbox, and it has none: "
                        "name a folder with App(sandbox=folder)")
        return getattr(self._sandbox, verb)(*map(os.fsdecode, texts), **options)


def _reg_progress_line(done: float, total: float | None, note: str) -> str:
    """Return the bar as one line of text; a total that is no positive number counts as unknown. Pure.

    >>> _reg_progress_line(1, 4, "copying")
    '[######                  ]  25%  copying'
    """
    if total is None or not total > 0:
        return f"{done}  {note}".rstrip()
    part = min(1, max(0, done / total))  # in this order NaN is no progress
    bar = "#" * int(part * REG_PROGRESS_BAR_CHARACTERS)
    return f"[{bar.ljust(REG_PROGRESS_BAR_CHARACTERS)}] {int(part * 100):3d}%  {note}".rstrip()


class Command:
    """A function under a name. Decorators make these; build one yourself to register a raw JSON Schema.

    The keyword arguments are those of ``command`` and ``native``; handler takes one dict where ``input`` is given.
    input, fields, output, prints, passthrough, open_names and takes_context are made by the first look at one of
    them, which may raise REGISTRATION_ERROR too.
    """

    help: str | None = None  #: text in place of the docstring
    keywords: Sequence[str] = ()  #: words that planners look for
    examples: Sequence[str] = ()  #: argument lines shown by help
    scope: str | None = None  #: what an identity must be allowed
    service: str | None = None  #: name of the Service, None outside of one
    destructive = False  #: needs an approval before each call
    readonly = False  #: changes nothing
    idempotent = False  #: a repeated call changes nothing more
    previews = False  #: is called in a dry run, with ctx.dry_run
    hidden = False  #: left out of lists and suggestions
    lines = False  #: a native that writes to ctx.stdout itself, while print() stays on stderr
    native = False  #: belongs to the executable
    present: Any = None  #: turns a native's result and the options into the text on stdout
    remote = False  #: stands for a tool of another system
    returns: Any = None  #: JSON Schema of the result in place of the return annotation
    args: Any = None  #: Arg objects by parameter
    input: Shape  #: what the arguments must be, always an object
    fields: list[Field]  #: the fields of input, in the order of declaration
    output: Shape | None  #: what the result must be, None where nothing is declared
    prints: bool  #: a native command without a result, which writes to stdout itself
    passthrough: str | None  #: the field that collects unknown options, None where they are refused
    open_names: frozenset[str]  #: fields that a model may give: all but secrets
    takes_context: bool  #: whether the handler sees the Ctx of its call
    _bind: Any

    def __init__(self, handler: Any, **options: Any) -> None:
        given = {option: value for option, value in options.items() if value is not None}
        #: from this another copy of this module, or another application, makes its own Command
        self.__knaif_command__ = dict(given, handler=handler)
        self.handler = handler.__func__ if isinstance(handler, staticmethod) else handler  #: what is called
        self.owner = _reg_owner(self.handler)  #: the function as messages name it
        self._function, self._bound = _reg_function(self.handler, self.owner)
        self._notes = _reg_annotations(self._function)
        for option, value in given.items():
            _reg_check_option(option, value, self.owner)
        self._raw = given.pop("input", None)
        #: what the command itself asked for, None where it leaves that to the application
        self.asked_surfaces: Iterable[str] | None = given.pop("expose", None)
        self.exit_status = given.pop("exit_code", None)  #: turns a native's result into its exit code
        self.name = _reg_command_name(given.pop("name", self._function.__name__), self.owner)  #: exact name
        self.action = given.pop("action", self.name)  #: the verb within the service
        self.__dict__.update(given)
        self._context, self._context_type = _reg_context(self._notes, self._function.__globals__)
        self.parameter_names = _reg_parameters(self)  #: names of the fields, without the context
        for fault in _reg_faults(self):
            raise RegistrationError(f"{self.owner}: {fault}")
        self._expose(REG_DEFAULT_EXPOSE)

    def _expose(self, default: Iterable[str]) -> None:
        """Put the command on its surfaces, before its schemas are made. Raises: REGISTRATION_ERROR."""
        _reg_check_option("expose", default, "the application")
        wanted = default if self.asked_surfaces is None else self.asked_surfaces
        self._surfaces = REG_CLI if self.native else frozenset(wanted)
        self._withheld: dict[str, str] = {}
        if self._raw is None and self._function.__code__.co_flags & 0x08:  # CO_VARKEYWORDS
            name = self.parameter_names[-1]
            self._withhold(f"**{name} is filled on the command line alone", f"replace **{name} by declared parameters")

    def _withhold(self, reason: str, remedy: str) -> None:
        """Take the command off agent and mcp; refuse where the command itself asked for them."""
        away = sorted(self._surfaces - REG_CLI)
        if away and self.asked_surfaces is not None:
            raise RegistrationError(f"{self.owner}: expose asks for {' and '.join(away)}, but {reason}; "
                                    f"expose it on cli alone or {remedy}")
        self._surfaces &= REG_CLI
        self._withheld.update(dict.fromkeys(away, reason))

    def is_on(self, surface: str | None) -> bool:
        """Tell whether the command stands on a surface (None: any); compiles its schemas for agent and mcp alone."""
        return surface is None or surface in self._surfaces and (surface == "cli" or surface in self.surfaces)

    @property
    def surfaces(self) -> frozenset[str]:
        """Where the command stands; a secret, which only its schema shows, keeps it off agent and mcp."""
        if self._surfaces - REG_CLI:
            _ = self.input
        return self._surfaces

    @property
    def withheld(self) -> dict[str, str]:
        """Surface -> why an exposure that the command did not ask for itself left it off that surface."""
        _ = self.input
        return self._withheld

    @property
    def description(self) -> str:
        """The help text, or the first paragraph of the docstring as one line; may be empty. Pure."""
        if self.help is not None:
            return self.help.strip()
        lines = [line.strip() for line in [*str(self._function.__doc__ or "").strip().splitlines(), ""]]
        return " ".join(lines[: lines.index("")])

    @property
    def identity(self) -> tuple[str | None, str, str | None] | None:
        """(service, action, scope) of a managed command, None for a native one."""
        return None if self.native else (self.service, self.action, self.scope)

    if not TYPE_CHECKING:  # a type checker must go on to refuse names that are no attribute

        def __getattr__(self, name: str) -> Any:
            """Make the schemas at the first look at what comes from them. Raises: REGISTRATION_ERROR."""
            if name not in REG_COMPILED:
                raise AttributeError(name)
            self._compile()
            return getattr(self, name)

    def call(self, values: Any, ctx: Ctx) -> Any:
        """Call the handler with admitted, typed values and return what it returns, which may be awaitable."""
        if self._raw is None:
            args, kwargs = self._bind(values, ctx)
            return self.handler(*args, **kwargs)
        if self._context is None:
            return self.handler(values)
        by_name = self._function.__code__.co_kwonlyargcount
        return self.handler(values, **{self._context: ctx}) if by_name else self.handler(values, ctx)

    def _compile(self) -> None:
        """Make the schemas. Nothing is kept unless all of it is sound. Raises: REGISTRATION_ERROR."""
        shape, fields, output, nothing, context, more, bind = _shapes_signature(
            self._function, extra_args=self.args, owner=self.owner, context_type=self._context_type, bound=self._bound,
            raw=self._raw is not None,
        )
        if self._raw is not None:
            make = getattr(self._function, "__knaif_input__", None)  # of a factory whose fields are another's
            shape, fields = make() if make else _shapes_from_schema(self._raw, owner=f"{self.owner}: input")
        if self.returns is not None:
            output = _shapes_raw(self.returns, f"{self.owner}: returns")
        for field in fields:
            if field.secret and field.required:
                self._withhold(f"the secret {field.name} is typed on the command line alone",
                               f"give {field.name} a default")
        silent = self.lines or output is None or self.returns is None and nothing
        self.output, self.prints = output, self.native and silent
        self.open_names = frozenset(field.name for field in fields if not field.secret)
        self.takes_context = (self._context if self._raw is not None else context) is not None
        self.input, self.fields, self.passthrough, self._bind = shape, fields, more, bind

    def __repr__(self) -> str:
        return f"<Command {self.name} of {self.owner}>"


def _reg_show(value: Any) -> str:
    """Return text in quotes, anything else as what it is, with its article, for messages. Pure."""
    if isinstance(value, str):
        return _json_show(value)
    name = "class" if isinstance(value, type) else type(value).__name__
    return ("an " if name[0].lower() in "aeiou" else "a ") + name


def _reg_owner(handler: Any) -> str:
    """Return how messages name a handler: module and qualified name, or what it is. Pure."""
    function = getattr(handler, "__func__", handler)
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if not isinstance(name, str):
        return _reg_show(handler)
    return f"{module}.{name}" if isinstance(module, str) else name


def _reg_function(handler: Any, owner: str) -> tuple[Any, bool]:
    """Return the function whose signature a handler has, and whether its first parameter is already filled.

    Wrappers made with functools.wraps are followed to the function they wrap; the wrapper is what is called.
    Raises: REGISTRATION_ERROR for classes, partial objects, built-in functions and other callables.
    """
    target, bound = handler, False
    for _ in range(REG_WRAPPER_LEVELS):
        if hasattr(target, "__func__"):
            target, bound = target.__func__, True
        if not hasattr(target, "__wrapped__"):
            break
        target = target.__wrapped__
    plain = isinstance(target, type(_reg_function)) and callable(handler)
    if not plain or type(handler).__name__.startswith("partial"):
        raise RegistrationError(f"{owner} cannot be a command; register a function made with def, or a method of an "
                                f"object, not {_reg_show(handler)}")
    if getattr(handler, "__code__", target.__code__).co_flags & REG_GENERATOR_FLAGS:
        raise RegistrationError(f"{owner} is a generator function; return a list instead of yielding")
    return target, bound


def _reg_is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= REG_NAME_CHARACTERS and REG_NAME_LETTERS.issuperset(name)


def _reg_command_name(name: Any, owner: str) -> str:
    """Return the name of a command or service, checked. Raises: REGISTRATION_ERROR."""
    why = ""
    if not _reg_is_name(name):
        why = f"is not made of 1 to {REG_NAME_CHARACTERS} ASCII letters, digits, _ and -"
    elif name[0] == "-":
        why = "begins like an option"
    elif name == "help":
        why = "is reserved"
    if why:
        raise RegistrationError(f"{owner}: the name {_reg_show(name)} {why}; give another one with name=")
    return str(name)


def _reg_check_option(option: str, value: Any, owner: str) -> None:
    """Refuse an option that does not exist, or a value that it cannot have. Raises: REGISTRATION_ERROR."""
    what = REG_COMMAND_OPTIONS.get(option)
    if what is None:
        raise RegistrationError(f"{owner}: a command has no option {_json_show(option)} in this version; "
                                f"the options are {', '.join(REG_COMMAND_OPTIONS)}")
    kinds = REG_VALUES[what]
    wrong = [] if isinstance(value, kinds) or kinds == () and callable(value) else [_reg_show(value)]
    if what.startswith("a list") and not wrong:
        wrong = ["one with " + _reg_show(item) for item in value
                 if not isinstance(item, str) or option == "expose" and item not in REG_SURFACES]
    if wrong:
        raise RegistrationError(f"{owner}: {option} must be {what}, not {wrong[0]}")


def _reg_annotations(function: Any) -> dict[str, Any]:
    """Return the annotations of a function as written; empty where Python 3.14 fails to evaluate one of them."""
    try:
        return _types_hints(function)
    except Exception:  # whatever an annotation raises is told when the schemas are made
        return {}


def _reg_context(notes: Mapping[str, Any], scope: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return (parameter annotated Ctx of this copy of the module or another, or None; its class). Pure.

    Annotations that are text are looked up and not evaluated.
    """
    for name, note in notes.items():
        note = getattr(note, "__forward_arg__", note)
        if isinstance(note, str):
            path = note.strip("'\" ").split(".")
            note = scope.get(path[0])
            for word in path[1:]:
                note = getattr(note, word, None)
            if note is None and path[-1] == "Ctx":
                note = Ctx  # a name that is not there is told when the schemas are made
        if isinstance(note, type) and "__knaif_ctx__" in note.__dict__ and name != "return":
            return name, note
    return None, Ctx


def _reg_parameters(command: Command) -> tuple[str, ...]:
    """Return the names of the fields. Raises: REGISTRATION_ERROR for a function that cannot take a raw schema's object.

    Sets the context of a function with a raw schema, which needs no annotation.
    """
    raw, code = command._raw, command._function.__code__
    names = _shapes_parameters(command._function)[command._bound :]
    if raw is None:
        return tuple(name for name in names if name != command._context)
    command._context = context = command._context or ("ctx" if "ctx" in names[1:] else None)
    if (code.co_argcount == command._bound or code.co_flags & REG_STAR_FLAGS or names[0] == context
            or names[1:] not in ((), (context,))):
        raise RegistrationError(f"{command.owner}: with input= the function takes the object as its first parameter "
                                f"and may take a Ctx beside it, not {', '.join(names) or 'nothing'}")
    if REG_COMPOSING_WORDS & raw.keys():
        return tuple(field.name for field in _shapes_from_schema(raw, owner=f"{command.owner}: input")[1])
    properties = raw.get("properties")
    return tuple(map(str, properties)) if isinstance(properties, dict) else ()


def _reg_faults(command: Command) -> Iterator[str]:
    """Yield what is wrong with options that are each right by themselves, and with parameters. Cheap."""
    given, raw, names = command.__knaif_command__, command._raw, command.parameter_names
    if command.destructive and command.readonly:
        yield "destructive and readonly exclude each other; leave one of them out"
    if command.previews and command._context is None:
        yield ("previews=True calls the function in dry runs, which only ctx.dry_run tells; "
               "give it a parameter annotated Ctx")
    if raw is not None and command.args is not None:
        yield "input already describes every field; leave args out"
    for option in ("expose", "scope") if command.native else ("present", "exit_code", "lines"):
        if option in given:
            kind = "managed commands; a native one is on cli alone" if command.native else "native commands"
            yield f"{option} belongs to {kind}; leave it out"
    if (command.present or command.exit_status) and command.returns is None:
        if command._notes.get("return") in (None, "None"):
            yield "present and exit_code need a result; annotate what the function returns, or give returns="
    if raw is None and names[:1] == ("self",) and "self" not in command._notes:
        yield "self is no field; register the method of an object in its place"
    for name in names if not command.remote else ():
        if name.replace("_", "-") in REG_RESERVED_FIELDS:
            yield f"the parameter {_json_show(name)} has a name that belongs to the framework; rename it"
        if raw is None and name == "ctx":
            yield 'the parameter "ctx" is the context of the call; annotate it Ctx or rename it'
        if raw is None and not _reg_is_name(name):
            yield (f"the parameter {_json_show(name)} is not made of 1 to {REG_NAME_CHARACTERS} ASCII letters, digits "
                   "and _; rename it")


def command(function: Any = None, **options: Any) -> Any:
    """Mark a function as a managed command, ``@command`` or ``@command(scope="admin")``; the function stays as it is.

    name: default the function's. help: default the docstring's first paragraph. keywords: words a planner looks for.
    expose: any of cli, agent, mcp; default what the application says. destructive: every call needs an approval.
    readonly, idempotent: what a batch may repeat. scope: what the identity must be allowed. returns: JSON Schema of the
    result; default the return annotation. previews: the function is called in dry runs and looks at ctx.dry_run.
    hidden: left out of help. examples: argument lines for help. args: Arg objects by parameter, for those who use no
    Annotated. input: JSON Schema of the arguments; the function then takes one dict.

    Options are checked when the program starts.
    """
    return _reg_recorder(function, options)


def native(function: Any = None, **options: Any) -> Any:
    """Mark a function as a command of this executable: on cli alone, without identity, lifecycle and hooks.

    Without a result (no return annotation, or None, and no returns) the function prints for itself. With one,
    present(result, options) may return the text for stdout and exit_code(result) the exit code, 0 to 255. The other
    options are those of command() but expose and scope. lines: the function writes to ctx.stdout itself, and whatever
    it calls, child processes included, can only print to stderr; its result is seen by exit_code alone.
    """
    return _reg_recorder(function, dict(options, native=True))


def _reg_recorder(function: Any, options: Mapping[str, Any]) -> Any:
    """Record what was given on the function, or return the decorator that does. A guard set once is never lowered.

    Raises: REGISTRATION_ERROR for what cannot carry a record.
    """

    def record(target: Any) -> Any:
        holder = getattr(target, "__func__", target)  # of a method, staticmethod or classmethod
        given = {key: value for key, value in options.items() if value is not None and value is not False}
        try:
            holder.__knaif_command__ = dict(holder.__dict__.get("__knaif_command__", {}), **given)
        except (AttributeError, TypeError):
            raise RegistrationError(f"{_reg_show(target)} cannot be a command; put the decorator on a function, "
                                    "with its options in parentheses by keyword") from None
        return target

    return record if function is None else record(function)


def _reg_record(thing: Any) -> dict[str, Any]:
    """Return what a decorator recorded on a function, or what a Command is made of; empty where nothing is. Pure."""
    record = getattr(getattr(thing, "__func__", thing), "__knaif_command__", None)
    return record if isinstance(record, dict) else {}


def _reg_command(thing: Any, spec: Mapping[str, Any] | None = None, *, default_expose: Iterable[str]) -> Command:
    """Return a new Command of a function, a recorded function or a Command, of this copy of the module or another.

    spec: options on top of the recorded ones. default_expose: surfaces for a command that does not say.
    Raises: REGISTRATION_ERROR.
    """
    options = dict(_reg_record(thing), **(spec or {}))
    made = Command(options.pop("handler", thing), **options)
    made._expose(default_expose)
    return made


class Service:
    """Functions around one kind of thing: ``Service("widgets", [list, get, archive], scope="user")``.

    Names follow the verb: list -> list_widgets; get, create, update, delete, archive and any other -> get_widget,
    archive_widget. A name that already contains the noun, and an explicit name=, stay as they are. scope and expose
    hold for functions that do not say.
    """

    def __init__(
        self, name: str, functions: Sequence[Any], *, scope: str | None = None, expose: Iterable[str] | None = None
    ) -> None:
        self.name = name  #: plural noun
        self.functions = functions  #: functions and Command objects
        self.scope = scope  #: for functions without their own
        self.expose = expose  #: for functions without their own


def _reg_service(service: Any, default_expose: Iterable[str]) -> list[Command]:
    """Return the commands of a Service, of this copy of the module or another, in order. Raises: REGISTRATION_ERROR."""
    name = _reg_command_name(getattr(service, "name", service), "a service")
    functions = getattr(service, "functions", None)
    if not isinstance(functions, (list, tuple)):
        raise RegistrationError(f"the service {name} needs a list of functions, not {_reg_show(functions)}")
    made = []
    for function in functions:
        record = _reg_record(function)
        handler = record.get("handler", function)
        if record.get("native"):
            raise RegistrationError(f"{_reg_owner(handler)} is a native command, which no service can hold; "
                                    "list it in the commands of the application")
        own = record.get("name")
        action = str(record.get("action") or own or getattr(getattr(handler, "__func__", handler), "__name__", ""))
        spec = {
            "service": name, "action": action, "scope": record.get("scope") or service.scope,
            "name": _reg_service_name(name, action) if own is None and action.isidentifier() else own,
        }
        expose = default_expose if service.expose is None else service.expose
        made.append(_reg_command(function, spec, default_expose=expose))
    return made


def _reg_service_name(service: str, action: str) -> str:
    """Return the verb-aware name of a function in a service. Pure.

    >>> [_reg_service_name("blog-entries", action) for action in ("list", "list_old", "get", "merge_blog_entry")]
    ['list_blog_entries', 'list_old_blog_entries', 'get_blog_entry', 'merge_blog_entry']
    """
    plural = service.replace("-", "_")
    singular = _reg_singular(plural)
    if any(f"_{noun}_" in f"_{action}_" for noun in (plural, singular)):
        return action
    return f"{action}_{plural if action.partition('_')[0] == 'list' else singular}"


def _reg_singular(noun: str) -> str:
    """Return the singular of a plural noun; words without one stay. What no ending tells needs an explicit name=. Pure.

    >>> [_reg_singular(noun) for noun in ("widgets", "categories", "boxes", "addresses", "statuses", "status", "sizes")]
    ['widget', 'category', 'box', 'address', 'status', 'status', 'size']
    """
    low, ends = "_" + noun.lower(), REG_PLURAL_ENDS.split()
    if low.rpartition("_")[2] in REG_SINGULAR_WORDS.split():
        return noun
    for plural, singular in zip(ends[::2] + ["s"], ends[1::2] + [""]):
        if low.endswith(plural):
            return (("_" + noun)[: -len(plural)] + singular)[1:]
    return noun


class Registry:
    """The commands of one application in the order of declaration. Names are exact; find_cli alone is lenient."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    def add(self, command: Command) -> None:
        """Add a command. Raises: REGISTRATION_ERROR when its name is taken."""
        other = self._commands.setdefault(command.name, command)
        if other is not command:
            raise RegistrationError(f"{other.owner} and {command.owner} are both named {_json_show(command.name)}; "
                                    "give one another name with name=")

    def get(self, name: str, surface: str | None = None) -> Command | None:
        """Return the command of exactly this name, on this surface or, without one, anywhere; else None."""
        found = self._commands.get(name)
        return found if found is not None and found.is_on(surface) else None

    def find_cli(self, token: str) -> Command | None:
        """Return the shell command of this name, else the only one that has _ where token has -; else None."""
        if token in self._commands:
            return self.get(token, "cli")
        near = [command for command in self.commands("cli") if command.name.replace("_", "-") == token]
        return near[0] if len(near) == 1 else None

    def commands(self, surface: str | None = None) -> list[Command]:
        """Return the commands of a surface, or all, hidden ones included, in order of declaration."""
        return [command for command in self._commands.values() if command.is_on(surface)]

    def suggest(self, name: str, surface: str) -> list[str]:
        """Return up to three names of visible commands near to this one, the nearest first. Pure; bounded."""
        return _reg_near(name, [command.name for command in self.commands(surface) if not command.hidden])

    def check(
        self, *, global_names: Iterable[str] = (), whole: bool = True, **policies: Iterable[str] | None
    ) -> None:
        """Check names against each other; cheap. Raises: REGISTRATION_ERROR.

        policies: options of App that name commands: aliases, positionals, passthrough, wait, default_command.
        whole: no further commands will come.
        """
        taken = {name.replace("_", "-"): name for name in global_names}
        for plain, name in taken.items():
            if plain in REG_RESERVED_FIELDS | {"version"}:
                raise RegistrationError(f"the application option {_json_show(name)} is named like a framework option; "
                                        "rename it")
        for command in self.commands():
            for field in command.parameter_names if not command.remote else ():
                if field.replace("_", "-") in taken:
                    raise RegistrationError(f"{command.owner}: the parameter {_json_show(field)} is named like an "
                                            "application option; rename one of them")
        for option, policy in policies.items() if whole else ():
            for name in [policy] if isinstance(policy, str) else policy or ():
                if self.get(name, "cli") is None:
                    near = " or ".join(self.suggest(str(name), "cli"))
                    hint = f"did you mean {near}?" if near else "name a command that is exposed on cli"
                    raise RegistrationError(f"App({option}=...) names {_json_show(str(name))}, which is no shell "
                                            f"command; {hint}")


def _reg_near(text: str, names: Sequence[str]) -> list[str]:
    """Return up to three names that text may have meant, the nearest first. Pure; work is bounded whatever text is.

    >>> _reg_near("shwo", ["show", "wipe"]), _reg_near("Show-All", ["show_all"]), _reg_near("task", ["add_task"])
    (['show'], ['show_all'], ['add_task'])
    """
    from difflib import get_close_matches

    texts = (text, *names[:REG_NEAR_CANDIDATES])
    wanted, *plain = [name[:REG_NAME_CHARACTERS].lower().replace("-", "_") for name in texts]
    near = get_close_matches(wanted, plain, REG_NEAR_NAMES)
    near += [name for name in plain if name not in near and wanted in name.split("_")]
    return [names[plain.index(name)] for name in near[:REG_NEAR_NAMES]]
# endregion REG


# region ARGV -- tokens to values, never argparse
# needs: LIMITS ERRORS JSON ENV TYPES REG
# Tokens go in, values and the sentences of every independent fault come out; nothing else is read or changed. No prefix
# of a name ever stands for the name. What may stand on a line is found out once; reading is one loop over the tokens.
#
#     line      = { option of the framework or application } [ command ] { option | word } [ "--" { word } ]
#     option    = "--" name [ value | "=" text | ":=" json ] | "--no-" boolean | "-" letter [ value | "=" text ]
#     name      = field | field "." key { "." key } | "." field ...     the leading dot: always the command's own field
#     option, standing free    "--..." | "-" letter ...                 anything else is a word, "-" and "-5" too
#     option, after a name     "--..." | "-" letter | "-" letter "=" .. anything else is that name's value
#     boolean   bare, or with a next token that is exactly true or false; after "=" the words of TYPES_BOOLEANS
#     array     once per element; or once, as JSON text that begins with "["; or by ":=", alone
#     unknown   refused; where a field collects them, read as its schema says, or raw: text, true when bare, a list
#     rest      from the first word that a rest field takes, every token to the end is that field's
# A field is read by its own schema; a second value of a single one, a whole beside its parts, are faults. Values of
# secrets, and what follows "=" in an unknown option, are never repeated in a fault.

ARGV_ARGS = 0  # homes of an option: the command's own fields,
ARGV_GLOBALS = 1  # the application's options,
ARGV_OPTIONS = 2  # the framework's
ARGV_VALUE = 0  # kinds of an option: one value,
ARGV_FLAG = 1  # true when bare,
ARGV_LIST = 2  # one value per element,
ARGV_EXTRA = 3  # undeclared, collected as it stands,
ARGV_HELP = 4  # asks for help, as often as it likes
ARGV_KINDS = {"boolean": ARGV_FLAG, "array": ARGV_LIST}
ARGV_NEXT_WORDS = ("true", "false")
ARGV_ALIAS_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
ARGV_COMPOSED = frozenset(("format", "$ref", "anyOf", "oneOf", "allOf"))  # beside these a type is not all there is
#: framework options that take more than text: the type of the value, and what a fault expects
ARGV_FRAMEWORK = {
    "wait-timeout": ("number", "a positive number of seconds"), "top": ("integer", "a positive whole number"),
    "output-dir": ("string", "a folder"), "table": ("array", "names of fields with commas between them"),
}


class _ArgvOption:
    """What a name on the line stands for: where its value goes and how its text is read."""

    def __init__(
        self, field: Field, home: int, root: Any, shown: str = "", path: Sequence[str] = (), part: Any = None
    ) -> None:
        self.field = field  #: the field it gives a value to, whole or a part
        self.name = field.name  #: key in its home
        self.home = home  #: index of the home in a line's homes
        self.root = root  #: where references in schema lead
        self.shown = shown  #: canonical spelling, safe to print
        self.schema = part if path else field.schema  #: JSON Schema of the value
        self.place: tuple[Any, ...] = (home, field.name, *path)  #: where the value goes: home, name, keys of a part
        kind = _argv_type(self.schema)
        kind = kind if isinstance(kind, str) else "".join(_types_kinds(self.schema, root) - {"null"})
        self.kind = ARGV_KINDS.get(kind, ARGV_VALUE)  #: one of the five kinds; several types have none of their own
        #: text of the whole value -> JSON value; raises _TypesFault
        self.read = _argv_read_flag if self.kind == ARGV_FLAG else self.reader(self.schema)

    @property
    def secret(self) -> bool:
        """Whether a fault must not repeat the value; an undeclared one may be a secret under a mistyped name."""
        shape = self.field.shape
        return self.field.secret or self.kind == ARGV_EXTRA or shape is not None and shape.has_role("secret")

    def element(self, number: int) -> Callable[[str], Any]:
        """Return what reads the text of one element of an array; each may have a schema of its own."""
        return self.reader(_types_element(self.schema, self.root, number))

    def reader(self, schema: Any) -> Callable[[str], Any]:
        """Return what reads the text of the value, or of one inside it, by its schema.

        Short digits, which are what is mostly typed, need none of the care that _types_read_text takes.
        """
        kind, loose, root = _argv_type(schema), self.field.path, self.root
        room = JSON_DEPTH_LEVELS - len(self.place)  # what is around the value has levels too
        if kind == "string":
            return str if loose else _argv_read_text

        def read(text: str) -> Any:
            value = _types_read_text(schema, text if loose else _argv_read_text(text), root)
            if len(text) > JSON_DEPTH_LEVELS and isinstance(value, (list, dict)):
                try:
                    _json_check_depth(text.encode("utf-8"), room)
                except _JsonFault as fault:
                    raise _TypesFault(expected=f"no {fault.reason}") from None
            return value

        def read_number(text: str) -> Any:
            digits = text.replace(".", "", 1) if kind == "number" else text
            if len(text) < ARGV_SHORT_DIGITS and digits.isdigit() and text.isascii():
                if text[0] not in "0." and text[-1] != ".":
                    return float(text) if "." in text else int(text)
            return read(text)

        return read_number if kind in ("integer", "number") else read


class _ArgvLine:
    """One line: everything that may stand on it, looked up by its spelling, and what came of reading it.

    fields None: the command is not known, and only framework and application options are taken. leading: the part of
    the line before the command, where --version is an option and --help takes a text to search for.
    """

    def __init__(
        self,
        *,
        name: str = "",
        fields: Sequence[Field] | None = None,
        root: Any = True,
        app_fields: Sequence[Field] = (),
        app_root: Any = True,
        aliases: Mapping[str, str] | None = None,
        positionals: Sequence[str] | None = None,
        passthrough: str | None = None,
        leading: bool = False,
    ) -> None:
        self.name = name  #: the command, for messages
        self.known = fields is not None  #: whether the command's fields are known
        self.leading = leading  #: whether this is the part before the command
        self.words: dict[str, _ArgvOption] = {}  #: spelling with its dashes -> option
        self.positionals: list[_ArgvOption] = []  #: options that words fill, in order
        self.tail: _ArgvOption | None = None  #: the last of them where it takes every further word
        self._add_framework()
        #: name of a field of the application -> its option
        self.shared = self._add_fields(app_fields, app_root, ARGV_GLOBALS, {})
        #: name of a field of the command -> its option
        self.own = own = self._add_fields(fields or (), root, ARGV_ARGS, aliases or {})
        for field, _, variadic in _argv_usage(fields or (), positionals, root, passthrough):
            self.positionals.append(own[field.name])
            self.tail = own[field.name] if variadic else None
        self.rest = self.tail is not None and self.tail.field.rest  #: whether the tail takes options too, from then on
        #: option of the field that collects unknown options
        self.collector = own[passthrough] if passthrough in own else None
        #: --no-name -> boolean option
        self.negatives = {"--no-" + word[2:]: option for word, option in self.words.items()
                          if option.kind in (ARGV_FLAG, ARGV_HELP) and word[:2] == "--"}
        odd = any("=" in word for word in self.words)
        #: what usual cases need, where no name holds "=": spelling -> whether it is a boolean, name, home and reader
        self.plain = {
            word: (one.kind == ARGV_FLAG, one.name, one.home, one.read)
            for word, one in self.words.items() if one.kind in (ARGV_VALUE, ARGV_FLAG) and not odd
        }
        self.longest = max(map(len, self.words)) + 2  #: where a declared name with ":=" ends at the latest

    def _add_framework(self) -> None:
        for name, form, _, _ in REG_OPTIONS:
            field = Field(name.replace("-", "_"), {"type": "boolean" if form == "boolean" else "string"})
            field.path = name == "output-dir"
            option = _ArgvOption(field, ARGV_OPTIONS, True, "--" + name)
            if name in ARGV_FRAMEWORK:
                option.read = _argv_framework_reader(*ARGV_FRAMEWORK[name])
            if name == "help":
                self.words["-h"] = option
                option.kind = ARGV_HELP
            if name != "version" or self.leading:
                self.words[option.shown] = option

    def _add_fields(
        self, fields: Sequence[Field], root: Any, home: int, aliases: Mapping[str, str]
    ) -> dict[str, _ArgvOption]:
        """Enter fields: every exact name, each free name with `_` written `-`, the command's `--.name`, the aliases."""
        made = {field.name: _ArgvOption(field, home, root) for field in fields}
        dashed: dict[str, _ArgvOption | None] = {}
        for name, option in made.items():
            self.words.setdefault("--" + name, option)
            word = "--" + name.replace("_", "-")
            dashed[word] = None if word in dashed else option
        for word, only in dashed.items():
            if only is not None:
                self.words.setdefault(word, only)
        self.words.pop("--", None)  # a field without a name
        for name, option in made.items():
            word, exact = "--" + option.field.public_name, "--." + name
            if home == ARGV_ARGS:
                self.words.setdefault(exact, option)
            option.shown = _argv_safe(word if self.words.get(word) is option else exact)
        for letter, name in [*aliases.items(), *((field.alias or "", field.name) for field in fields)]:
            if letter and name in made:
                self.words.setdefault("-" + letter, made[name])
        return made

    def begin(self) -> None:
        """Forget what was read."""
        self.command: str | None = None  #: of a route: the command's word or the default's name; None: none is called
        self.version = False  #: of a route: whether the version is asked for
        self.help: str | None = None  #: None: not asked; "": asked; else the text to search for
        self.unknown = False  #: whether a name was not understood, so that words may stand in wrong places
        self.tokens: list[str] = []  #: of a route: every other token, order kept
        self.args: dict[str, Any] = {}  #: the command's fields that were given, read
        self.globals: dict[str, Any] = {}  #: the application's options that were given, read
        self.options = Options()  #: the framework's options
        self.faults: list[str] = []  #: a sentence each, in the order of the line; under help only global_faults
        self.global_faults: list[str] = []  #: those of application options
        self.homes: tuple[dict[str, Any], ...] = (self.args, self.globals, self.options.__dict__)  #: what values go to
        self.parts: set[tuple[Any, ...]] = set()  #: places of the objects that are given in parts
        #: place of an array -> the object it goes into, its option, and what was given for each element
        self.lists: dict[tuple[Any, ...], tuple[dict[str, Any], _ArgvOption, list[tuple[Any, ...]]]] = {}
        self.waiting: list[int] = []  #: tokens that wait for a place
        self.found: list[tuple[int, bool, str]] = []  #: faults: token, whether of an application option, sentence

    def add_fault(self, index: int, sentence: str, option: _ArgvOption | None = None) -> None:
        """Note a fault at a token."""
        self.found.append((index, option is not None and option.home == ARGV_GLOBALS, sentence))


# Reading text


def _argv_is_text(text: str) -> bool:
    """Tell whether a token is proper text: bytes of argv that were not UTF-8 arrive as lone surrogates. Pure."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _argv_type(schema: Any) -> Any:
    """Return the type of a schema where it alone says how text is read, else None. Pure."""
    return schema.get("type") if isinstance(schema, dict) and ARGV_COMPOSED.isdisjoint(schema) else None


def _argv_read_text(text: str) -> str:
    if text.isascii() or _argv_is_text(text):
        return text
    raise _TypesFault(expected="UTF-8 text")


def _argv_read_flag(text: str) -> bool:
    value = TYPES_BOOLEANS.get(text.lower())
    if value is None:
        raise _TypesFault(expected="true or false")
    return value


def _argv_framework_reader(kind: str, expected: str) -> Callable[[str], Any]:
    """Return what reads the text of an option of ARGV_FRAMEWORK."""

    def read(text: str) -> Any:
        try:
            value: Any = (
                tuple(name.strip() for name in _argv_read_text(text).split(",") if name.strip())
                if kind == "array" else _types_read_text({"type": kind}, text, True))
        except _TypesFault:
            value = None
        if not value or kind in ("integer", "number") and value < 0:
            raise _TypesFault(expected=expected)
        return value

    return read


def _argv_value(line: _ArgvLine, option: _ArgvOption, use: tuple[Any, ...], number: int | None = None) -> Any:
    """Return the value of a use, or of one element of an array; what cannot be read is a fault, and None stands for it.

    use: the token's index, the option's spelling ("" for a word), the text after it, whether that is JSON.
    """
    index, head, text, assigned = use
    if text is None:
        return True
    try:
        if assigned:
            return _json_loads(text, max_depth=JSON_DEPTH_LEVELS - len(option.place))
        return option.read(text) if number is None else option.element(number)(text)
    except _TypesFault as fault:
        expected, reason = fault.expected, ""
    except _JsonFault as fault:
        expected, reason = "JSON", f" ({fault.reason})"
    shown = option.shown + ":=" if assigned else _argv_spelled(option, head)
    line.add_fault(index, _argv_expects(shown, expected, text, option.secret) + reason, option)
    return None


def _argv_elements(line: _ArgvLine, option: _ArgvOption, uses: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return an array of what was given for each of its elements."""
    return [_argv_value(line, option, use, number) for number, use in enumerate(uses)]


# Words for faults


def _argv_safe(text: str) -> str:
    """Return a name as it may be printed. Pure."""
    return _env_human(text, limit=ERRORS_QUOTED_CHARACTERS)


def _argv_expects(shown: str, expected: str, text: str, secret: bool) -> str:
    """Return the sentence for text that cannot be read; of text so long that its digits alone refuse it, the length."""
    long = len(text) > JSON_INT_DIGITS
    got = f"a text of {len(text):,} characters" if long else _json_show(text, ERRORS_QUOTED_CHARACTERS)
    return f"{shown} expects {expected}" + ("" if secret else f", got {got}")


def _argv_spelled(option: _ArgvOption, head: str) -> str:
    """Return an option as the user spelled it, with its full name beside an alias; <name> for a word. Pure."""
    if not head:
        return f"<{_argv_safe(option.field.public_name)}>"
    return option.shown if head[:2] == "--" else f"{head} ({option.shown})"


def _argv_unknown(line: _ArgvLine, head: str) -> str:
    """Return the sentence for a name that nothing declares; never with the value beside it or attached to it."""
    words, letter = line.words, head[:2]
    if letter != "--":
        if letter in words:
            return f"{letter} stands apart from other letters; a value follows it as {letter} VALUE or {letter}=VALUE"
        letters = ", ".join(sorted(word for word in words if len(word) == 2))
        return f"unknown option {letter}; the short options are {letters}"
    hint = f"{line.name} --help lists all of them" if line.known else "a command's options stand after its name"
    if len(line.found) < ARGV_FAULTS:
        near = _reg_near(head[2:], list({option.shown[2:]: True for option in words.values()}))
        hint = f"did you mean --{' or --'.join(near)}?" if near else hint
    return f"unknown option {_argv_safe(head)}; {hint}"


# One token after another


def _argv_is_option(token: str) -> bool:
    """Tell whether a token that stands free is an option. Pure."""
    return token[:1] == "-" and (token[1:2] == "-" or token[1:2] in ARGV_ALIAS_LETTERS)


def _argv_is_value(token: str) -> bool:
    """Tell whether a token after an option that needs a value is that value: --x, -x and -x=... are not. Pure."""
    return token[:2] != "--" and not (_argv_is_option(token) and token[2:3] in ("", "="))


def _argv_find(line: _ArgvLine, index: int, token: str) -> tuple[_ArgvOption | None, str, str | None, bool]:
    """Return what a token names: its option, its spelling, the text after "=", and whether that is JSON.

    No option, where nothing is called so; that is a fault unless the command itself is not known.
    """
    words, long, cut = line.words, token[:2] == "--", 0
    if token in words:
        return words[token], token, None, False
    root = line.collector if long else None
    for at, sign in enumerate(token[: line.longest]):  # a declared name may itself hold such a sign
        name = token[:at]
        if sign == "=":
            assigned = long and name not in words and name[-1:] == ":"
            head = name[:-1] if assigned else name
            if head in words:
                return words[head], head, token[at + 1 :], assigned
        elif sign == "." and long and name in words:
            root, cut = words[name], at + 1
    head, equals, rest = token.partition("=")
    assigned = bool(equals) and long and head[-1:] == ":"
    head, text = head[:-1] if assigned else head, rest if equals else None
    option = line.negatives.get(head)
    if option is not None:
        if text is not None:
            line.add_fault(index, f"{_argv_safe(head)} takes no value; write {option.shown}=true or =false", option)
        return option, head, "false", False
    if root is not None and cut:
        option = _argv_find_part(line, index, root, head[cut:].split("."), f"{root.shown}.{_argv_safe(head[cut:])}")
    elif root is not None and len(head) > 2:
        option = _argv_find_part(line, index, root, [head[2:]], _argv_safe(head))
    elif line.known:
        line.add_fault(index, _argv_unknown(line, head))
    line.unknown = line.unknown or option is None and text is None
    return option, head, text, assigned


def _argv_find_part(
    line: _ArgvLine, index: int, root: _ArgvOption, path: Sequence[str], shown: str
) -> _ArgvOption | None:
    """Return the option for a part of a declared object, `--root.key.key`; None, and a fault, where it has none."""
    schema, wrong = root.schema, ""
    if "" in path or len(path) >= JSON_DEPTH_LEVELS or not _argv_is_text("".join(path)):
        wrong = f"names no part; keys are UTF-8 text with one dot before each, fewer than {JSON_DEPTH_LEVELS}"
    for at, key in enumerate(() if wrong else path):
        if "object" not in _types_kinds(schema, root.root):
            above = ".".join([root.shown, *map(_argv_safe, path[:at])])
            wrong = f"names a part of {above}, which is not an object"
            break
        schema = _types_member(schema, key, root.root)
    if wrong:
        line.add_fault(index, f"{shown} {wrong}", root)
        return None
    option = _ArgvOption(root.field, root.home, root.root, shown, path, schema)
    if root is line.collector and schema == {}:
        option.kind = ARGV_EXTRA
    return option


def _argv_take(
    line: _ArgvLine, tokens: Sequence[str], index: int, found: tuple[_ArgvOption | None, str, str | None, bool]
) -> int:
    """Take the option that was found at index, with its value where it has one; return the index after it."""
    option, head, text, assigned = found
    after = index + 1
    if option is None:
        return after
    following = tokens[after] if after < len(tokens) else "--"
    if assigned and option.home == ARGV_OPTIONS:
        line.add_fault(index, f"{option.shown} does not take :=; write = in its place")
        return after
    if text is None:
        takes = _argv_is_value(following)
        if option.kind in (ARGV_FLAG, ARGV_HELP):
            needle = option.kind == ARGV_HELP and line.leading and not _argv_is_option(following)
            takes = needle or following in ARGV_NEXT_WORDS
        elif not takes and option.kind != ARGV_EXTRA:
            wanted = f"requires a value, as in {_argv_safe(head)}=VALUE"
            line.add_fault(index, f"{_argv_spelled(option, head)} {wanted}", option)
            return after
        if takes:
            text = following
            after += 1
    if option.kind == ARGV_HELP:
        asked = TYPES_BOOLEANS.get((text or "true").lower(), text)
        if asked is not False:
            line.help = line.help or ("" if asked is True else asked)
    else:
        _argv_put(line, option, (index, head, text, assigned))
    return after


def _argv_put(line: _ArgvLine, option: _ArgvOption, use: tuple[Any, ...]) -> None:
    """Give an option what stands on the line for it: one element more, or its only value.

    A value that is already there, around it or in it, is a fault.
    """
    place, node, overlaps, wrong = option.place, line.homes[option.home], False, ""
    many = option.kind == ARGV_EXTRA or option.kind == ARGV_LIST and not use[3]
    if many and place in line.lists:
        line.lists[place][2].append(use)
        return
    for end, key in enumerate(place[1:-1], 2):
        if key in node and place[:end] not in line.parts:
            overlaps = True
            break
        line.parts.add(place[:end])
        node = node.setdefault(key, {})
    if overlaps or place[-1] in node and place in line.parts:
        wrong = "overlaps a value given before; give the whole or its parts"
    elif place[-1] in node:
        wrong = "is given more than once" + "; := gives the whole array" * (option.kind == ARGV_LIST)
    if wrong:
        line.add_fault(use[0], f"{option.shown} {wrong}", option)
        return
    node[place[-1]] = None  # what comes later finds its place taken
    if many:
        line.lists[place] = node, option, [use]
    else:
        node[place[-1]] = _argv_value(line, option, use)


# Words, and where they go


def _argv_unset(line: _ArgvLine) -> list[_ArgvOption]:
    return [option for option in line.positionals if option.name not in line.args]


def _argv_take_words(line: _ArgvLine, tokens: Sequence[str], index: int) -> int:
    """Take a word, or after "--" all that follow, and return the index after it."""
    literal = tokens[index] == "--"
    after = len(tokens) if literal else index + 1
    if line.known and not line.rest:
        line.waiting.extend(range(index + literal, after))
    elif line.known:
        if _argv_unset(line)[:1] == [line.tail]:
            after = len(tokens)  # a rest field begins here and ends the options
        _argv_place(line, tokens, range(index + literal, after))
    return after


def _argv_place(line: _ArgvLine, tokens: Sequence[str], words: Sequence[int]) -> None:
    """Give words to the positional fields that nothing has set, in order; the tail takes all that remain."""
    unset = _argv_unset(line)
    for option, index in zip(unset, words):
        if option is line.tail:
            uses = [(at, "", tokens[at], False) for at in words[len(unset) - 1 :]]
            line.args[option.name] = _argv_elements(line, option, uses)
            return
        line.args[option.name] = _argv_value(line, option, (index, "", tokens[index], False))
    if len(words) > len(unset):
        index = words[len(unset)]
        line.add_fault(index, _argv_surplus(line, tokens[index]))


def _argv_surplus(line: _ArgvLine, word: str) -> str:
    """Return the sentence for a word that no positional field can take; it may be a secret in a wrong place. Pure."""
    labels = [_argv_spelled(option, "") for option in line.positionals]
    if line.tail is not None:
        return f"{labels[-1][:-1]}...> and {line.tail.shown} are both given; use one form"
    secrets = any(option.secret for option in line.words.values())
    what = "" if secrets else " " + _json_show(word, ERRORS_QUOTED_CHARACTERS)
    return f"unexpected argument{what}; {line.name} takes {' '.join(labels) or 'no positional arguments'}"


# The whole line


def _argv_parse(tokens: Sequence[str], line: _ArgvLine) -> _ArgvLine:
    """Read the tokens of a command, its own name left out, into a line. Linear in the tokens; raises nothing."""
    line.begin()
    plain, homes, next_words, index, count = line.plain, line.homes, ARGV_NEXT_WORDS, 0, len(tokens)
    while index < count:
        token = tokens[index]
        entry, after, text = plain.get(token), index + 1, "-"
        if entry is None:
            head, _, text = token.partition("=")
            entry = plain.get(head)
        elif entry[0]:
            text = "-" if after < count and tokens[after] in next_words else "true"
        elif after < count:
            text = tokens[after]
            after += 1
        if entry is not None and text[:1] != "-":  # the usual cases, quickly
            _, name, home, read = entry
            values = homes[home]
            if name not in values:
                try:
                    values[name] = read(text)
                    index = after
                    continue
                except _TypesFault:
                    pass
        if token != "--" and _argv_is_option(token):
            index = _argv_take(line, tokens, index, _argv_find(line, index, token))
        else:
            index = _argv_take_words(line, tokens, index)
    if line.waiting and not line.unknown:
        _argv_place(line, tokens, line.waiting)
    _argv_finish(line)
    return line


def _argv_finish(line: _ArgvLine) -> None:
    """Make each array of its elements, and put the faults in order."""
    for node, option, uses in line.lists.values():
        whole = len(uses) == 1 and (option.kind == ARGV_EXTRA or str(uses[0][2])[:1] == "[")
        read = _argv_value(line, option, uses[0]) if whole else _argv_elements(line, option, uses)
        node[option.place[-1]] = read
    line.options.help = line.help
    if line.found:
        line.found.sort(key=lambda fault: fault[0])
        line.global_faults = _argv_told(line, True)
        line.faults = _argv_told(line, line.help is not None)


def _argv_told(line: _ArgvLine, shared_alone: bool) -> list[str]:
    """Return so many faults, of all options or of the application's alone, as a person reads, each once. Pure."""
    faults = list(dict.fromkeys(sentence for _, shared, sentence in line.found if shared or not shared_alone))
    more = len(faults) - ARGV_FAULTS
    return faults if more <= 0 else [*faults[:ARGV_FAULTS], f"and {more} more faults of this line"]


def _argv_route(
    tokens: Sequence[str], app_fields: Sequence[Field], default_command: str | None, app_root: Any = True
) -> _ArgvLine:
    """Find the command of a line. Pure; raises nothing.

    Framework and application options may stand before it. The first word is the command, never a word of the
    default's; an option that neither knows begins the line of the default command where there is one. Faults are told
    only where no command is called: the command's own line finds them again.
    """
    line = _ArgvLine(app_fields=app_fields, app_root=app_root, leading=True)
    line.begin()
    index = 0
    while index < len(tokens) and tokens[index] != "--" and _argv_is_option(tokens[index]):
        found = _argv_find(line, index, tokens[index])
        option, start = found[0], index
        if option is None:
            break
        index = _argv_take(line, tokens, index, found)
        front = list(tokens[start:index])
        if option.kind == ARGV_FLAG and found[2] is None and len(front) == 1:
            front[0] += "=true"  # the command's word will be gone, and the one after it must not become the value
        if option.place != (ARGV_OPTIONS, "version") or line.found:  # the command's own line knows no such option
            line.tokens += front
    after = list(tokens[index:])
    word = after[0] if after else None
    if line.options.version:
        line.version, line.help = True, line.help or ""
    elif word == "help":
        # What follows is read as a line of its own: options may stand before the word that is searched for, too.
        line.help = line.help or _argv_route(after[1:], app_fields, None, app_root).command or ""
    elif word is not None and not _argv_is_option(word):
        if not line.help:
            # --help=true before a command asks for that command's help, which its own line finds again.
            line.help, line.command = None, after.pop(0)
    elif word == "--":
        line.add_fault(index, "-- stands before any command; name the command first")
    elif word is not None and default_command is None:
        line.add_fault(index, _argv_unknown(line, word.partition("=")[0]))
    elif line.help is None:
        line.command = default_command
    line.tokens += after
    _argv_finish(line)
    line.faults = line.faults if line.command is None else []
    return line


# Environment and piped text


def _argv_fill(values: dict[str, Any], field: Field, text: str, root: Any, shown: str) -> list[str]:
    """Give a field one text, read as after `--name=`. Returns what is wrong with it."""
    option = _ArgvOption(field, ARGV_ARGS, root, shown)
    try:
        single = option.kind == ARGV_LIST and text[:1] != "["
        values[field.name] = [option.element(0)(text)] if single else option.read(text)
    except _TypesFault as fault:
        return [_argv_expects(shown, fault.expected, text, option.secret)]
    return []


def _argv_fill_env(values: dict[str, Any], fields: Sequence[Field], root: Any, environ: Mapping[str, str]) -> list[str]:
    """Fill fields that are not given from their environment variables; an empty one is unset. Returns the faults."""
    faults = []
    for field in fields:
        text = environ.get(field.env, "") if field.env and field.name not in values else ""
        if text:
            shown = f"the environment variable {_argv_safe(field.env or '')} (for --{_argv_safe(field.public_name)})"
            faults += _argv_fill(values, field, text, root, shown)
    return faults


def _argv_fill_text(
    values: dict[str, Any], field: Field, text: str, root: Any, source: str = "standard input"
) -> list[str]:
    """Fill a field from the text of a source, white space around it left out. Returns the faults."""
    text = text.strip()
    return _argv_fill(values, field, text, root, f"{source} (for <{_argv_safe(field.public_name)}>)") if text else []


def _argv_missing(fields: Sequence[Field], args: Mapping[str, Any], root: Any) -> Field | None:
    """Return the first required field that is unset and that text can fill: no boolean."""
    unset = (field for field in fields if field.required and field.name not in args)
    return next((field for field in unset if not _argv_is_only(field, root, "boolean")), None)


# The positional policy


def _argv_is_only(field: Field, root: Any, kind: str) -> bool:
    return _types_kinds(field.schema, root) - {"null"} == {kind}


def _argv_usage(
    fields: Sequence[Field], positionals: Sequence[str] | None, root: Any, passthrough: str | None = None
) -> list[tuple[Field, bool, bool]]:
    """Return (field, required, variadic) of each positional, in order; help shows and the parser follows this.

    Without a policy: every field in the order of declaration but booleans, secrets, option-only fields and the one
    that collects unknown options; nothing stands after a rest or `*args` field. With one: exactly the fields named,
    and the last of them is variadic where it is an array. Pure.
    """
    usage = []
    named = {field.name: field for field in fields}
    if positionals is not None:
        chosen = [named[name] for name in positionals if name in named]
        return [(field, field.required, field is chosen[-1] and _argv_is_only(field, root, "array"))
                for field in chosen]
    for field in fields:
        if field.option_only or field.secret or field.name == passthrough or _argv_is_only(field, root, "boolean"):
            continue
        usage.append((field, field.required, field.variadic or field.rest))
        if field.variadic or field.rest:
            break
    return usage


def _argv_check_policy(
    owner: str,
    fields: Sequence[Field],
    *,
    root: Any,
    aliases: Mapping[str, str] | None = None,
    positionals: Sequence[str] | None = None,
    passthrough: str | None = None,
    app_fields: Sequence[Field] = (),
) -> None:
    """Check what an application says about the line of one command. Raises: REGISTRATION_ERROR."""
    named = {field.name: field for field in fields}
    extra = named.get(passthrough or "")
    if passthrough is not None and (extra is None or "object" not in _types_kinds(extra.schema, root)):
        raise RegistrationError(f"{owner}: passthrough names {_json_show(passthrough)}, which is no field that holds "
                                "an object")
    given = aliases or {}
    letters: dict[str, str] = {}
    for letter, name in [*given.items(), *((f.alias, f.name) for f in (*fields, *app_fields) if f.alias)]:
        wrong = (
            "must be one ASCII letter other than h, which asks for help"
            if letter not in ARGV_ALIAS_LETTERS or letter == "h" else
            "stands for none of its fields" if name not in named and letter in given else
            f"stands for {_json_show(letters[letter])} too" if letters.setdefault(letter, name) != name else "")
        if wrong:
            raise RegistrationError(f"{owner}: the alias {_json_show(letter)} of {_json_show(name)} {wrong}")
    order, optional = positionals or (), ""
    for place, name in enumerate(order):
        field = named.get(name)
        wrong = (
            "which is none of its fields" if field is None else
            "twice" if name in order[:place] else
            "a boolean, which is an option only" if _argv_is_only(field, root, "boolean") else
            f"which is required, after {_json_show(optional)}, which is not" if field.required and optional else
            "which takes the rest of the line, before the last place" if field.rest and name != order[-1] else "")
        optional = optional if field is None or field.required else name
        if wrong:
            raise RegistrationError(f"{owner}: positionals names {_json_show(name)}, {wrong}")
# endregion ARGV


# region CALL -- Engine: find, admit, run; Admitted; Approval
# needs: ERRORS ENV JSON LIMITS PATHS REG SCHEMA TYPES
# Every way in meets here, once its arguments are a JSON object. The order of a call, which is also the order in
# which it is refused:
#
#     find      the command on this surface, by its exact name
#     admit     hooks.before_call, reading (MODEL), defaults, validation, paths, typed values: no effects
#     authorise identity, context, lifecycle.before_handle
#     approve   destructive calls alone: one Approval over the admitted call
#     handle    the user's function: nothing above may fail after it, nothing below may run before it
#     check     lifecycle.after_handle, the output against its schema
#     observe   hooks.on_error, hooks.after_call: they see everything and change nothing
#
# A dry run, a plan check and a digest are "admit, then stop". The steps are coroutines that never wait unless a
# handler does, so one text serves run and arun.


class Lifecycle:
    """What stands around every managed handler.

    before_handle(ctx, args): authorise; raise nk.Error to refuse. after_handle(ctx, result): may raise, or return a
    value other than None to replace the result. Both may be coroutine functions. Native commands have no lifecycle.
    """

    def __init__(
        self,
        before_handle: Callable[[Ctx, dict[str, Any]], object] | None = None,
        after_handle: Callable[[Ctx, Any], object] | None = None,
    ) -> None:
        self.before_handle = before_handle  #: called after admission, before approval
        self.after_handle = after_handle  #: called with the handler's result, before it is checked


class Hooks:
    """Observers of managed calls; all are optional.

    before_call(command, args): before admission, without effects; a mapping it returns replaces args and is taken as
    it is (text in it is not read as numbers). on_error(command, args, error): any refusal or exception, with its
    traceback. after_call(command, args, outcome): at the end of every call that was no mere dry run. The last two are
    given the admitted arguments where there are any, may be coroutine functions, and what they raise is dropped.
    """

    def __init__(
        self,
        before_call: Callable[[Command, dict[str, Any]], Mapping[str, Any] | None] | None = None,
        on_error: Callable[[Command, dict[str, Any], BaseException], object] | None = None,
        after_call: Callable[[Command, dict[str, Any], Outcome], object] | None = None,
    ) -> None:
        self.before_call = before_call  #: may replace the arguments
        self.on_error = on_error  #: sees what was raised
        self.after_call = after_call  #: sees how the call ended


class AuthHook(Lifecycle):
    """A lifecycle that guards scoped commands and fails closed.

    identity(ctx) finds the caller (for most programs ``lambda ctx: ctx.identity``); rules maps each scope to a function
    of that identity which returns True to allow. A command without a scope is open. No identity source or no identity:
    UNAUTHORIZED. No rule for the scope, or any answer but True: FORBIDDEN. Both functions may be coroutine functions.
    """

    def __init__(
        self,
        identity: Callable[[Ctx], Any] | None = None,
        rules: Mapping[str, Callable[[Any], Any]] | None = None,
        after_handle: Callable[[Ctx, Any], object] | None = None,
    ) -> None:
        super().__init__(self._authorise, after_handle)
        self.identity = identity  #: finds the caller from the context of a call
        self.rules = dict(rules or {})  #: scope -> does this identity have it

    def _authorise(self, ctx: Ctx, args: dict[str, Any]) -> object:
        if ctx.command.scope is None:
            return None
        who = self.identity(ctx) if self.identity is not None else None
        return _call_then(who, lambda found: self._judge(ctx, found))

    def _judge(self, ctx: Ctx, who: Any) -> object:
        if who is None or who is False:
            raise Error("UNAUTHORIZED", f"{ctx.command.name} needs the scope {ctx.command.scope}, "
                        "and nobody is signed in")
        rule = self.rules.get(ctx.command.scope or "")
        return _call_then(rule(who) if rule is not None else False, lambda allowed: self._check(ctx, allowed))

    def _check(self, ctx: Ctx, allowed: Any) -> None:
        if allowed is not True:
            raise Error("FORBIDDEN", f"{ctx.command.name} needs the scope {ctx.command.scope}, "
                        "which this identity does not have")


class Admitted:
    """A call that may run: its arguments are complete, valid and final."""

    __slots__ = ("call", "args", "values", "paths", "entered", "returned", "_digest", "_facts")

    def __init__(
        self, call: Call, args: dict[str, Any], values: Any, paths: list[tuple[Any, ...]], facts: Engine
    ) -> None:
        self.call = call  #: what was asked
        self.args = args  #: final JSON: defaults filled in, paths resolved; never changed after this point
        self.values = values  #: the same as the typed Python values the function receives
        self.paths = paths  #: the places in args that were resolved as paths
        self.entered = False  #: whether the handler was reached
        self.returned = False  #: whether the handler came to its end, so that a failure is none of its own
        self._facts = facts
        self._digest = ""

    @property
    def digest(self) -> str:
        """SHA-256 in hex over application, command, schema, sandbox, globals, profile and args. Computed when asked."""
        if not self._digest:
            self._digest = self._facts.digest(self)
        return self._digest

    @property
    def needs_approval(self) -> bool:
        """Whether the command destroys something, so that an Approval must cover this call."""
        return self.call.command.destructive


class Approval:
    """Say who lets a destructive call happen: nobody, the caller, or a person who is asked.

    kind none: nobody; all: every call; digest: the one admitted call of that digest; names: commands of those names;
    ask: whatever a person answers. Nothing that a model, a plan or a remote system sends can become an Approval.
    """

    __slots__ = ("kind", "value")

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind = kind  #: none, all, digest, names or ask
        self.value = value  #: the digest, the set of command names, or the function that asks

    def check_covers(self, admitted: Admitted) -> None:
        """Return when the call is approved. Raises: CONFIRMATION_REQUIRED. Asks a person where the kind is ask."""
        name = admitted.call.command.name
        hint = None
        if self.kind == "all" or self.kind == "names" and name in self.value:
            return
        if self.kind == "digest":
            if self.value == admitted.digest:
                return
            why = f"{name} is destructive, and the approval is for another call than this one"
        elif self.kind == "ask":
            answer = self.value(admitted)
            if answer is True:
                return
            if answer is None:
                why, hint = f"{name} is destructive and needs a confirmation", "pass --yes to confirm"
            else:
                why = f"{name} was not confirmed, so nothing was done"
        else:
            why = f"{name} is destructive and needs a confirmation"
        raise Error("CONFIRMATION_REQUIRED", why, hint=hint)


class Engine:
    """Runs calls against one registry for one process, line loop or server. Holds everything that is found once."""

    def __init__(
        self,
        registry: Registry,
        *,
        env: Env,
        app: Any,
        name: str,
        version: str,
        hooks: Hooks | None = None,
        lifecycle: Lifecycle | None = None,
        resolve_auth: Callable[[], Any] | None = None,
        make_context: Callable[[Any], Any] | None = None,
        globals_json: Mapping[str, Any] | None = None,
        globals_value: Any = None,
        options: Options | None = None,
        find_profile: Callable[[], Any] | None = None,
        sandbox: Any = None,
        exit_codes: Mapping[str, int] | None = None,
        capture: bool = False,
    ) -> None:
        self.registry = registry  #: the commands
        self.env = env  #: the outside world
        self.app = app  #: what ctx.app shows
        self.name, self.version = name, version  #: part of every digest
        self.hooks = hooks or Hooks()  #: observers
        self.lifecycle = lifecycle or Lifecycle()  #: what stands around a managed handler
        self.globals_json = globals_json or {}  #: application options as JSON, part of every digest
        self.globals_value = globals_value  #: the same as the application sees them
        self.options = options or Options()  #: framework options of this line
        self.sandbox = sandbox  #: a Sandbox, UNCONFINED, or None
        self.exit_codes = exit_codes  #: overrides of the table
        self.capture = capture  #: whether ctx.stdout and ctx.stderr are kept for Outcome.written (in-process calls)
        self.hidden_salt = b""  #: random; stands in digests so that a secret cannot be guessed from one
        self._resolve_auth = resolve_auth
        self._make_context = make_context
        self._identity: Any = None  # (identity, context), or the Error that kept them from being found
        self.profile_name: str | None = None  #: the profile that the caller named
        self._gate: Any = None  # tasks take turns at finding the identity
        self._find_profile = find_profile
        self._profile: tuple[Any, Error | None] | None = None

    # -- find -------------------------------------------------------------------------------------------------------

    def find(self, name: str, surface: str) -> Command:
        """Return the command of exactly this name on this surface. Raises: NOT_FOUND with the nearest names. Pure."""
        command = self.registry.get(name, surface)
        if command is None:
            raise _call_unknown(self.registry, name, surface)
        return command

    # -- admit ------------------------------------------------------------------------------------------------------

    def admit(self, call: Call) -> Admitted:
        """Return the call with complete, valid, final arguments; calls nothing of the user's but hooks.before_call.

        Raises: VALIDATION_ERROR, SANDBOX_ESCAPE, or what before_call refuses with. Reads the file system for paths.
        """
        command = call.command
        if self._find_profile is not None and not command.native:
            _ = self.profile  # one that cannot be resolved refuses the call
        try:
            args = _json_copy(call.args)
        except _JsonFault as fault:
            raise Error("VALIDATION_ERROR", f"the arguments of {command.name} are not JSON: {fault}") from None
        replaced = self._before_call(command, args)
        shape = command.input
        args = args if replaced is None else replaced
        if call.surface != "cli":
            _call_check_declared(command, args)
        args = _call_complete(command, args)
        issues = shape.issues(args)
        if issues and replaced is None and call.reading == "MODEL":
            args = shape.read_model(args)  # valid arguments hold no text that would be read
            issues = shape.issues(args)
        if issues:
            raise _schema_error(issues)
        args = shape.complete(args)
        paths = shape.locate(args, "path") if shape.has_role("path") else []
        if paths:
            args = self._resolve_paths(call, args, paths)
        return Admitted(call, args, shape.to_python(args), paths, self)

    def _before_call(self, command: Command, args: dict[str, Any]) -> dict[str, Any] | None:
        hook = self.hooks.before_call
        if hook is None or command.native:
            return None
        replaced = hook(command, _json_copy(args))
        if replaced is None:
            return None
        if not hasattr(replaced, "keys"):
            raise Error("INTERNAL_SERVER_ERROR", f"hooks.before_call returned a {type(replaced).__name__} for "
                        f"{command.name}, which is neither a mapping nor None")
        return {key: replaced[key] for key in replaced.keys()}

    def _resolve_paths(self, call: Call, args: dict[str, Any], paths: list[tuple[Any, ...]]) -> dict[str, Any]:
        """Return args with every path resolved below the sandbox, or as typed where the application has none."""
        sandbox = self.sandbox
        trusted = call.surface == "cli"
        if sandbox is None and not trusted:
            raise Error("SANDBOX_ESCAPE", f"{call.command.name} takes a path, and this application has no sandbox",
                        hint="the application can name a folder with App(sandbox=...)")
        args = _json_copy(args)
        for place in paths:
            holder: Any = args
            for step in place[:-1]:
                holder = holder[step]
            text = holder[place[-1]]
            if sandbox is None or sandbox is UNCONFINED:
                _paths_check_text(text)
            else:
                free = trusted and not os.path.isabs(text)
                holder[place[-1]] = sandbox.resolve(text, self.env.cwd if free else sandbox.root)
        return args

    def digest(self, admitted: Admitted) -> str:
        """Return the SHA-256 that approval, journal and question quote. Secrets enter it under a random salt."""
        shape = admitted.call.command.input
        args = admitted.args
        if shape.has_role("secret"):
            self.hidden_salt = self.hidden_salt or self.env.random(CALL_SALT_BYTES)
            args = _json_copy(args)
            for place in shape.locate(args, "secret"):
                if _call_at(args, place) is not None:
                    _call_put(args, place, _json_digest([self.hidden_salt.hex(), _call_at(args, place)]))
        root = self.sandbox.root if isinstance(self.sandbox, Sandbox) else None
        return _json_digest({
            "app": self.name, "version": self.version, "command": admitted.call.command.name,
            "schema": _json_digest(shape.schema), "sandbox": root, "globals": self.globals_json,
            "profile": self.profile and [self.profile.name, self.profile.facts], "args": args,
        })

    # -- run --------------------------------------------------------------------------------------------------------

    async def perform(self, call: Call, approval: Approval, *, live: Any = False) -> Outcome:
        """Admit and run a call; every refusal and failure is an Outcome, never an exception. live: inside a loop."""
        admitted = await self.try_admit(call, live)
        return await self.run(admitted, approval, live=live) if isinstance(admitted, Admitted) else admitted

    async def try_admit(self, call: Call, live: Any = False) -> Admitted | Outcome:
        """Return the admitted call, or the outcome that refuses it, which the observers have seen."""
        try:
            return self.admit(call)
        except BaseException as error:
            if _call_is_interruption(error, live):
                raise
            return await self._end(call, call.args, self._failed(call.command, error), error, live)

    async def run(self, admitted: Admitted, approval: Approval, *, live: Any = False) -> Outcome:
        """Run an admitted call: authorise, approve, handle, check, observe. A dry run stops before it authorises.

        A dry run of a command that previews goes the whole way with ctx.dry_run, without approval. KeyboardInterrupt
        and the like go on to the caller after the observers have seen them.
        """
        call = admitted.call
        if call.dry_run and not call.command.previews:
            return Outcome(True, data=self.resolved_call(admitted))
        error: BaseException | None = None
        ctx = self.make_ctx(call)
        try:
            result = await self._handle(admitted, approval, ctx, live)
            outcome = self._succeeded(admitted, result)
        except KeyboardInterrupt as interruption:
            aborted = Error("REQUEST_ABORTED", "the call was interrupted")
            outcome = Outcome(False, error=aborted, exit_code=self.exit_code(aborted.code), entered=admitted.entered)
            await self._end(call, admitted.args, outcome, interruption, False)
            raise
        except SystemExit as leaving:
            if not (call.command.native and call.command.prints):
                error = leaving
            outcome = self._left(call.command, leaving)
        except BaseException as exception:
            if _call_is_interruption(exception, live):
                raise
            error = exception
            outcome = self._failed(call.command, exception)
        finally:
            if ctx is not None:
                ctx.end_progress()
        outcome.entered, outcome.returned = admitted.entered, admitted.returned
        if self.capture and ctx is not None:
            outcome.written = _call_written(ctx)
        if error is None and self.hooks.after_call is None:
            return outcome
        return await self._end(call, admitted.args, outcome, error, live)

    async def _handle(self, admitted: Admitted, approval: Approval, ctx: Any, live: Any) -> Any:
        """Authorise, approve, call the handler and return what it returned. Raises: whatever any of them does."""
        call, command = admitted.call, admitted.call.command
        seen = ctx is not None
        if not command.native:
            known = self._identity
            found = known if isinstance(known, tuple) else await self.identity(live)
            if seen:
                ctx.identity, ctx.context = found
            if self.lifecycle.before_handle is not None:
                allowed = await _call_settle(self.lifecycle.before_handle(ctx, _json_copy(admitted.args)), live)
                if allowed is False:
                    raise Error("FORBIDDEN", f"{command.name} is not allowed here")
        if call.dry_run:
            ctx.dry_run = True
        elif admitted.needs_approval:
            approval.check_covers(admitted)
            if seen:
                ctx.confirmed = True
        if call.cancel is not None:
            call.cancel.check()
        admitted.entered = True
        result = command.call(admitted.values, ctx)
        if hasattr(result, "__await__"):
            result = await _call_settle(result, live)
        admitted.returned = True
        if not command.native and self.lifecycle.after_handle is not None:
            replaced = await _call_settle(self.lifecycle.after_handle(ctx, result), live)
            result = result if replaced is None else replaced
        return result

    def _succeeded(self, admitted: Admitted, result: Any) -> Outcome:
        """Return the outcome of a handler that returned; what it returned is checked before anyone sees it."""
        command = admitted.call.command
        prints = command.native and command.prints
        data = None if prints else _call_output(command, result)
        if admitted.call.dry_run and not prints:
            data = dict(self.resolved_call(admitted), preview=data)
        status = 0
        if command.exit_status is not None:
            status = command.exit_status(result)
            if isinstance(status, bool) or not isinstance(status, int) or not 0 <= status <= CALL_STATUS_MAX:
                raise Error("INTERNAL_SERVER_ERROR", f"exit_code of {command.name} returned no whole number from 0 to "
                            f"{CALL_STATUS_MAX}")
        return Outcome(True, data=data, exit_code=status, result=result)

    def _failed(self, command: Command, error: BaseException) -> Outcome:
        shown = _call_refusal(command, error)
        return Outcome(False, error=shown, exit_code=self.exit_code(shown.code))

    def _left(self, command: Command, leaving: SystemExit) -> Outcome:
        """Return the outcome of a handler that called sys.exit: only a native that prints for itself may."""
        code = leaving.code
        if not (command.native and command.prints):
            return self._failed(command, leaving)
        if code is None or isinstance(code, int):
            status = (code or 0) & CALL_STATUS_MAX
            return Outcome(status == 0, exit_code=status)
        self.env.write_err(self.env.human(str(code), lines=True) + "\n")
        return Outcome(False, exit_code=ERRORS_EXIT_OTHER)

    async def _end(
        self, call: Call, args: dict[str, Any], outcome: Outcome, error: BaseException | None, live: Any
    ) -> Outcome:
        """Let the observers see the end of a managed call; what they raise changes nothing."""
        if error is not None and (not isinstance(error, Error) or error.__cause__ is not None):
            _call_trace(self.env, error.__cause__ or error)
        hooks = self.hooks
        mere = call.dry_run and not call.command.previews
        if mere or call.command.native or hooks.on_error is None and hooks.after_call is None:
            return outcome
        try:
            seen = _json_copy(args)
        except _JsonFault:
            seen = dict(args)  # a call made in process may hold anything; it was refused for that
        try:
            if error is not None and hooks.on_error is not None:
                await _call_settle(hooks.on_error(call.command, seen, error), live)
        except BaseException as fault:
            if _call_is_interruption(fault, live):
                raise
            _call_trace(self.env, fault)
        try:
            if hooks.after_call is not None:
                await _call_settle(hooks.after_call(call.command, seen, _call_seen(outcome)), live)
        except BaseException as fault:
            if _call_is_interruption(fault, live):
                raise
            _call_trace(self.env, fault)
        return outcome

    # -- what is found once -----------------------------------------------------------------------------------------

    async def identity(self, live: Any = False) -> tuple[Any, Any]:
        """Return (identity, context), found at most once, failure included. Raises: what resolve_auth refused with."""
        if self._identity is None and live is True:
            import asyncio

            self._gate = self._gate or asyncio.Lock()
            async with self._gate:
                await self._find_identity(live)
        elif self._identity is None:
            await self._find_identity(live)
        if isinstance(self._identity, Error):
            raise self._identity.with_traceback(None)
        found: tuple[Any, Any] = self._identity
        return found

    async def _find_identity(self, live: Any) -> None:
        if self._identity is not None:
            return
        try:
            who = await _call_settle(self._resolve_auth(), live) if self._resolve_auth is not None else None
            what = await _call_settle(self._make_context(who), live) if self._make_context is not None else None
            self._identity = (who, what)
        except (Exception, SystemExit) as error:
            unknown = Error("INTERNAL_SERVER_ERROR", "the identity of the caller could not be found out")
            unknown.__cause__ = error
            self._identity = error if isinstance(error, Error) else unknown

    @property
    def profile(self) -> Any:
        """The Profile that every call works with, found at most once, failure included; None without profiles.

        Its public form is part of every digest. Raises: what ProfileStore.resolve refused with.
        """
        if self._profile is None:
            try:
                self._profile = (self._find_profile() if self._find_profile is not None else None, None)
            except Error as refusal:
                self._profile = (None, refusal)
        found, failure = self._profile
        if failure is not None:
            raise failure.with_traceback(None)
        return found

    def twin(self) -> Engine:
        """Return an engine for calls inside a call: what was found stays found, output is kept, options are off."""
        other = object.__new__(Engine)
        other.__dict__.update(self.__dict__, capture=True, options=Options(quiet=True))
        return other

    def make_ctx(self, call: Call) -> Ctx | None:
        """Return the context a handler sees, before identity and confirmation are known; None where nobody looks."""
        around = self.lifecycle
        if not call.command.takes_context and around.before_handle is None and around.after_handle is None:
            return None
        out = err = None
        if not self.capture:
            err = self.env.stderr_text()
            out = self.env.stdout_text() if call.command.native and call.command.prints else err
        return Ctx(
            app=self.app, command=call.command, env=self.env, call_id=call.id, surface=call.surface,
            sandbox=self.sandbox if isinstance(self.sandbox, Sandbox) else None, globals=self.globals_value,
            options=self.options, engine=self, cancel=call.cancel, stdout=out, stderr=err, capture=self.capture,
        )

    def resolved_call(self, admitted: Admitted) -> dict[str, Any]:
        """Return {"command", "args"} as dry runs and questions show it: final values, secrets as ***. Pure.

        A copy: whoever is shown what would run must not reach what runs.
        """
        args, shape = _json_copy(admitted.args), admitted.call.command.input
        for place in shape.locate(args, "secret") if shape.has_role("secret") else ():
            _call_put(args, place, CALL_MASK)
        return {"command": admitted.call.command.name, "args": args}

    def exit_code(self, code: str) -> int:
        """Return the exit code of an error code under this application's overrides. Pure."""
        return exit_code(code, self.exit_codes)


def _call_trace(env: Env, error: BaseException) -> None:
    """Print the traceback of an unexpected exception on standard error where KNAIF_TRACE=1 asks for it."""
    if env.environ.get("KNAIF_TRACE") == "1":
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        env.write_err(env.human(text, lines=True))


def _call_drive(steps: Any) -> Any:
    """Return what a coroutine of this section returns; without a live loop it never waits, so one step is all."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    steps.close()
    raise Error("INTERNAL_SERVER_ERROR", "a step waited for an event loop that is not there")


async def _call_settle(value: Any, live: Any) -> Any:
    """Return value, awaited where it is awaitable: in the running loop when live, else in a loop of its own.

    live may also be a function that runs an awaitable to its end, in a loop that is kept for many calls.
    """
    if not hasattr(value, "__await__"):
        return value
    if live is True:
        return await value
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return (live or asyncio.run)(_call_await(value))
    if hasattr(value, "close"):
        value.close()
    raise Error("BAD_REQUEST", "a coroutine handler cannot be run synchronously inside a running event loop: await "
                "arun or ainvoke instead")


async def _call_await(value: Any) -> Any:
    return await value


def _call_then(value: Any, use: Callable[[Any], Any]) -> Any:
    """Return use(value), now or, where value is awaitable, as a coroutine that awaits it first."""
    if not hasattr(value, "__await__"):
        return use(value)

    async def later() -> Any:
        result = use(await value)
        return await result if hasattr(result, "__await__") else result

    return later()


def _call_complete(command: Command, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return args in the order of declaration, with the default of every field that was left out. Pure."""
    complete = {}
    for field in command.fields:
        name = field.name
        if name in args:
            complete[name] = args[name]
        elif field.default is not TYPES_ABSENT:
            default = field.default
            complete[name] = _json_copy(default) if isinstance(default, (list, dict)) else default
    complete.update(args)  # names that no field has come last
    return complete


def _call_check_declared(command: Command, args: Mapping[str, Any]) -> None:
    """Refuse arguments that a model may not give, secrets among them, whatever the schema says.

    Raises: VALIDATION_ERROR.
    """
    declared = command.open_names
    if not args.keys() <= declared:
        unknown = [name for name in args if name not in declared]
        raise Error("VALIDATION_ERROR", f"{_json_show(unknown[0])} is not a field of {command.name}",
                    hint="declared fields: " + (", ".join(sorted(declared)) or "none"))


def _call_output(command: Command, result: Any) -> Any:
    """Return the JSON form of a handler's result. Raises: INTERNAL_SERVER_ERROR, for a wrong output is our fault."""
    try:
        if command.output is None:
            return _types_write_free(result)
        data = command.output.to_json(result)
        issues = command.output.issues(data)
    except (_TypesFault, _JsonFault) as fault:
        place = _json_pointer(fault.path)
        what = fault.message if isinstance(fault, _TypesFault) else fault.reason
        raise Error("INTERNAL_SERVER_ERROR", f"{command.name} returned a wrong result"
                    f"{' at ' + place if place else ''}: {what}") from fault
    if issues:
        worst = _schema_error(issues)
        raise Error("INTERNAL_SERVER_ERROR", f"{command.name} returned a wrong result: {worst.message}")
    return data


def _call_is_interruption(error: BaseException, live: Any) -> bool:
    """Tell whether this ends more than a call: Ctrl-C, or a running loop that takes its task back. Pure."""
    return isinstance(error, KeyboardInterrupt) or live is True and not isinstance(error, (Exception, SystemExit))


def _call_seen(outcome: Outcome) -> Outcome:
    """Return an outcome for an observer, who may do to it what he likes. Pure."""
    data = _json_copy(outcome.data) if outcome.data is not None else None
    return Outcome(
        outcome.ok, data=data, error=outcome.error, exit_code=outcome.exit_code, entered=outcome.entered,
        returned=outcome.returned, written=outcome.written, digest=outcome.digest, result=outcome.result,
    )


def _call_is_sound(error: Error) -> bool:
    """Tell whether an Error is what its constructor makes; details without a JSON form are taken out of it."""
    try:
        texts = isinstance(error.code, str) and isinstance(error.message, str)
        error.code, error.message = str.__str__(error.code), str.__str__(error.message)  # no subclass, such as an Enum
        sound = texts and isinstance(error.hint, (str, type(None))) and isinstance(error.retryable, bool)
        if sound and error.details is not None:
            try:
                error.details = _json_copy(error.details)
            except Exception:
                error.details = {"message": "the details of this error have no JSON form"}
        return sound and isinstance(error.relayed, bool) and isinstance(error.to_wire(), dict)
    except Exception:
        return False


def _call_refusal(command: Command, error: BaseException) -> Error:
    """Return what the caller is told: an Error as it is, anything else as a neutral INTERNAL_SERVER_ERROR."""
    if isinstance(error, Error) and _call_is_sound(error):
        return error
    if isinstance(error, OSError) and command.native and command.prints and error.filename is None:
        # What a native prints goes through its own print(); where that fails, it is the output that failed.
        gone = isinstance(error, ConnectionError)
        return _env_no_reader() if gone else Error("OUTPUT_FAILED", f"{command.name} could not write: {error.strerror}")
    try:
        wire = error.to_wire()  # type: ignore[attr-defined]
        # The Error of another copy of this file, vendored under another name, is as good as ours.
        return Error(wire["code"], wire["message"], details=wire.get("details"), hint=wire.get("hint"),
                     retryable=wire["retryable"] is True)
    except Exception:
        pass  # it is none
    shown = Error("INTERNAL_SERVER_ERROR", f"{command.name} failed unexpectedly",
                  hint="set KNAIF_TRACE=1 to see the traceback")
    shown.__cause__ = error
    return shown


def _call_unknown(registry: Registry, name: str, surface: str) -> Error:
    """Return the NOT_FOUND of a command name, with the nearest names of that surface. Pure."""
    near = registry.suggest(name, surface)
    tail = f"; did you mean {' or '.join(near)}?" if near else ""
    return Error("NOT_FOUND", f"there is no command {_json_show(name)}{tail}",
                 details={"suggestions": near} if near else None)


def _call_written(ctx: Ctx) -> dict[str, str] | None:
    """Return what the handler wrote to ctx.stdout and ctx.stderr, None for nothing; what it closed is lost. Pure."""
    written = {}
    for name, stream in (("stdout", ctx._stdout), ("stderr", ctx._stderr)):
        text = "" if stream is None or stream.closed else stream.getvalue()
        if text:
            written[name] = text
    return written or None


def _call_at(value: Any, place: Sequence[str | int]) -> Any:
    for step in place:
        value = value[step]
    return value


def _call_put(value: Any, place: Sequence[str | int], new: Any) -> None:
    _call_at(value, place[:-1])[place[-1]] = new
# endregion CALL


# region VIEWS -- count-by, sum, by, sort, top, table over a result; pure
# needs: LIMITS ERRORS JSON ENV SCHEMA TYPES REG
# A view answers a question about a listing in place of the listing. The words, one meaning each:
#
#     --count-by F            records per value of F, largest group first          {"active": 33, "idle": 33}
#     --sum F [--by G]        total of F, or one total per value of G              4753
#     --by G --top N          the same as --count-by G --top N
#     --sort F [--ascending]  records by F, largest first; without a value: last in both directions
#     --top N                 the first N entries of the view asked for
#     --table A,B             those fields as an aligned table: the one shape made for people
#
# A field is an exact key of the records, else a dotted path into them. The same fold serves a whole result and a
# stream: it is fed some records at a time and holds no more than its answer needs.
#
# Order of values: numbers by value, text by code point, booleans, then arrays and objects by canonical text.

VIEWS_INTEGER = frozenset((int,))


def view(value: Any, *, count_by: str | None = None, sum: str | None = None, by: str | None = None,
         sort: str | None = None, ascending: bool = False, top: int | None = None,
         table: Sequence[str] | None = None) -> Any:
    """Return a view of a JSON value: the array itself, or the one array field of an object. Pure.

    Counts and sums are objects or numbers, a sorted or cut listing is an array, a table is text without a final line
    end. Integers stay exact at any size; floats are added as the decimals they print as. Raises: USAGE for options
    that do not go together, fields no record has, values that cannot be added, and values without one collection.

    >>> view([{"s": "a", "n": 1}, {"s": "b", "n": 2}, {"s": "a", "n": 0.1}], sum="n", by="s")
    {'b': 2, 'a': 1.1}
    """
    asked = Options(
        count_by=count_by, sum=sum, by=by, sort=sort, ascending=ascending, top=top, table=tuple(table or ()))
    faults = _views_faults(asked)
    if faults:
        raise _ErrorsUsage(faults)
    return _views_answer(asked, value)


def _views_answer(asked: Options, value: Any) -> Any:
    """Return the view of one whole value that options without faults ask for. Raises: USAGE. Pure."""
    fold = _ViewsFold(asked)
    records, fold.where = _views_collection(value)
    fold.add_all(records)
    return fold.result()


def _views_fields(asked: Options) -> list[str]:
    """Return every field that a view names, in the order of the options. Pure."""
    names = asked.count_by, asked.sum, asked.by, asked.sort, *(asked.table or ())
    return [name for name in names if name is not None]


def _views_is_asked(options: Options) -> bool:
    return bool(_views_fields(options) or options.ascending or options.top is not None)


def _views_faults(asked: Options) -> list[str]:
    """Return a sentence for each combination of options that has no one meaning. Pure."""
    count, total, sort, top = asked.count_by is not None, asked.sum is not None, asked.sort is not None, asked.top
    by, grouped = asked.by is not None, "--count-by" if count else "--sum"
    rules = [(count and total, "--count-by and --sum are two questions: ask one of them, or --sum with --by")]
    for name, given in (("--table", bool(asked.table)), ("--sort", sort)):
        rules += [
            (given and (count or total), f"{name} works on records, and {grouped} gives groups: pass one of them"),
            (given and by, f"{name} works on records, and --by makes groups: pass one of them"),
        ]
    needs = ("--top with --sum needs --by: one total has no leading entries" if total else
             "--top alone asks nothing: add --sort, --count-by, --by or --table")
    rules += [
        (by and count, "--count-by already groups: leave out --by"),
        (by and not (count or total) and top is None,
         "--by alone asks nothing: add --top, or use --count-by or --sum"),
        (asked.ascending and not sort, "--ascending needs --sort: groups come largest first"),
        (top is not None and (isinstance(top, bool) or top < 1), "--top takes a whole number above 0"),
        (top is not None and not (count or by or sort or asked.table), needs),
    ]
    return [sentence for holds, sentence in rules if holds]


def _views_unknown(asked: Options, schema: Any) -> list[str]:
    """Return what this output schema rules out, as far as it says: a result without records, unknown fields. Pure."""
    kinds = _types_kinds(schema, schema)
    if kinds and not kinds & {"array", "object"}:
        words = " or ".join(_views_word(kind) for kind in sorted(kinds))
        return [f"a view needs a collection, and the result is {words} without one"]
    parts = [schema]
    if kinds != {"array"}:
        whole = _schema_resolve(schema, schema)
        parts = whole.get("properties", {}).values() if isinstance(whole, dict) else []
    lists = [part for part in parts if _types_kinds(part, schema) == {"array"}]
    item = _schema_resolve(_types_element(lists[0], schema), schema) if len(lists) == 1 else None
    if not isinstance(item, dict) or item.get("additionalProperties") is not False or "patternProperties" in item:
        return []
    known = item.get("properties", {})
    return [_views_no_field(name, known) for name in _views_fields(asked)
            if name not in known and name.partition(".")[0] not in known]


def _views_no_field(name: str, known: Collection[str], where: str = "") -> str:
    """Return the fault of a field that no record has, with the first of those there are. Pure."""
    shown = [_views_name(other) for other in list(known)[:VIEWS_NAMES_SHOWN]]
    tail = " and more" if len(known) > len(shown) else ""
    return f"no record{where} has the field {_views_name(name)}; there are: {', '.join(shown) or 'none'}{tail}"


def _views_collection(value: Any, what: str = "the result") -> tuple[list[Any], str]:
    """Return the records a view works on, and what messages say after "record 3": ' of "items"' or nothing.

    Raises: USAGE when the value holds no collection, or more than one.
    """
    if isinstance(value, (list, tuple)):
        return list(value), ""
    lists = [key for key, item in value.items() if isinstance(item, (list, tuple))] if isinstance(value, dict) else []
    if len(lists) == 1:
        return list(value[lists[0]]), f" of {_json_show(lists[0])}"
    found = f"has several: {', '.join(map(_json_show, lists))}"
    if not lists:
        found = f"is {_views_word(_json_kind(value))} without one"
    raise _ErrorsUsage([f"a view needs {'one' if lists else 'a'} collection, and {what} {found}"])


def _views_word(kind: str) -> str:
    return {"null": "null", "object": "an object", "array": "an array", "integer": "a number"}.get(kind, f"a {kind}")


class _ViewsFold:
    """Takes records and gives the answer at the end; memory grows with the answer, not with the records.

    Totals are exact: integers at any size, floats as the decimals they print as. A count is a total of ones.
    """

    def __init__(self, asked: Options) -> None:
        self.asked = asked  #: the view
        self.group = asked.by if asked.count_by is None else asked.count_by  #: field whose values make groups, or None
        self.count = 0  #: records taken
        self.earlier = 0  #: how many of them came from sources before this one
        self.where = ""  #: what messages say after "record 3"
        self.missing = _views_fields(asked)  #: fields that no record had yet
        self.names: dict[str, None] = {}  #: fields of the first records, for the message about one that is missing
        self.totals: dict[Any, int] = {}  #: key of a group, None where there are none -> its count or sum of integers
        self.decimals: dict[Any, Any] = {}  #: the same key -> exact Decimal of its floats
        self.decimal: Any = None  #: the class Decimal, once there is a float
        self.exact: Any = None  #: a context of it that never rounds
        self.values: dict[Any, Any] = {}  #: key of a group that is no text -> the value it stands for
        self.ranked: list[tuple[Any, Any]] = []  #: (rank, record) of a sorted view
        self.worst: Any = None  #: rank that a record must beat to be among the leading ones; None: any will do
        self.rest: list[Any] = []  #: records of a view that is not sorted, or without a value to sort by

    def begin(self) -> None:
        """Count the records of another source from 1."""
        self.earlier = self.count

    def add_all(self, records: list[Any]) -> None:
        """Take records. Raises: USAGE for one that is no object and for values that cannot be added or compared."""
        try:
            if self.asked.sum is None and self.group is None:
                self._add_records(records)
            else:
                self._add_totals(records)
        except _JsonFault as fault:
            raise _ErrorsUsage([f"{self._place('record')} holds {fault.reason}, which a view cannot use"]) from None

    def _add_totals(self, records: list[Any]) -> None:
        """Count records, or add up a field, per value of the group field where there is one. Raises: USAGE, _JsonFault.

        Fast where the field is an integer in all of these records, and the group a text.
        """
        name, group, totals = self.asked.sum, self.group, self.totals
        numbers = [1] * len(records) if name is None else _views_column(records, name, VIEWS_INTEGER)
        keys = [None] if group is None else _views_column(records, group, JSON_TEXT_TYPE)
        if numbers is not None and keys is not None:
            for key, number in zip(keys, [sum(numbers)] if group is None else numbers):
                totals[key] = totals.get(key, 0) + number
            self.missing.clear()
            self.count += len(records)
            return
        read, read_group = _views_reader(name or ""), _views_reader(group or "")
        for record in records:
            if self.missing or type(record) is not dict:
                self._look_at(record)
            key = None if group is None else self._group_key(read_group(record))
            value = 1 if name is None else read(record)
            totals.setdefault(key, 0)
            if isinstance(value, float):
                self._add_float(key, value)
            elif isinstance(value, int) and not isinstance(value, bool):
                totals[key] += value
            elif value is not None and value is not TYPES_ABSENT:
                raise _ErrorsUsage([f"--sum {_views_name(name or '')}: {self._place('record')} holds "
                                    f"{_json_show(value)}, which is not a number"])
            self.count += 1

    def _add_float(self, key: Any, value: float) -> None:
        """Add a float to what a group holds of them. Raises: _JsonFault."""
        _views_check_finite(value)
        if self.decimal is None:
            import decimal

            self.decimal, self.exact = decimal.Decimal, decimal.Context(prec=VIEWS_SUM_DIGITS)
        self.decimals[key] = self.exact.add(self.decimals.get(key, 0), self.decimal(float.__repr__(value)))

    def _total(self, key: Any) -> Any:
        """Return a total: an int, or the float that prints as it; where none does, it is rounded once, here."""
        whole = self.totals.get(key, 0)
        if key not in self.decimals:
            return whole
        exact = self.exact.add(self.decimals[key], whole)
        near = float(exact)
        if near - near == 0 and self.decimal(repr(near)) == exact:
            return near
        return round(exact) if near - near != 0 or exact == int(exact) else near

    def _add_records(self, records: list[Any]) -> None:
        """Keep the records that can still be among the leading ones. Raises: USAGE, _JsonFault."""
        asked = self.asked
        limit, name = asked.top, asked.sort
        read = _views_reader(name) if name is not None else None
        for record in records:
            if self.missing or type(record) is not dict:
                self._look_at(record)
            value = read(record) if read is not None else None
            if value is not None and value is not TYPES_ABSENT:
                rank = _views_rank(value)
                if self.worst is None or (rank < self.worst if asked.ascending else rank > self.worst):
                    self.ranked.append((rank, record))
                    if limit is not None and len(self.ranked) >= limit * 2 + VIEWS_SORT_SLACK:
                        self._cut(limit)
            elif limit is None or len(self.rest) < limit:
                self.rest.append(record)
            self.count += 1

    def _cut(self, limit: int | None) -> None:
        """Sort what was kept and keep the leading ones; equal ones stay in the order they came, in both directions."""
        self.ranked.sort(key=lambda pair: pair[0], reverse=not self.asked.ascending)
        if limit is not None and len(self.ranked) >= limit:
            del self.ranked[limit:]
            self.worst = self.ranked[-1][0]

    def result(self) -> Any:
        """Return the answer. Raises: USAGE when a field was in no record."""
        asked = self.asked
        for name in self.missing if self.count else ():
            raise _ErrorsUsage([_views_no_field(name, self.names, "" if self.earlier else self.where)])
        if self.group is not None:
            labels = _views_labels(self.totals, self.values)
            totals = [(labels[key], self._total(key)) for key in self.totals]
            totals.sort(key=lambda pair: pair[1], reverse=True)
            return dict(totals[:asked.top])
        if asked.sum is not None:
            return self._total(None)
        self._cut(asked.top)
        records = [record for _rank, record in self.ranked] + self.rest
        return _views_table(records[:asked.top], asked.table) if asked.table else records[:asked.top]

    def _group_key(self, value: Any) -> Any:
        """Return the key of the group that a value belongs to: text is its own, others are never equal to text."""
        if type(value) is str:
            return value
        key = TYPES_ABSENT if value is TYPES_ABSENT else _json_key(value)
        if isinstance(key, str):
            return key
        self.values.setdefault((key,), value)
        return (key,)

    def _look_at(self, record: Any) -> None:
        """Note which fields a record has, and where one is missing, what it has instead. Raises: USAGE."""
        if not isinstance(record, dict):
            raise _ErrorsUsage([f"a view needs records, and {self._place('entry', ' of the collection')} is "
                                f"{_views_word(_json_kind(record))}"])
        for name in list(self.missing):
            if _views_reader(name)(record) is not TYPES_ABSENT:
                self.missing.remove(name)
            elif len(self.names) <= VIEWS_NAMES_SHOWN:  # one more than is shown tells that there are more
                self.names.update(dict.fromkeys(record))

    def _place(self, what: str, where: str = "") -> str:
        return f"{what} {self.count - self.earlier + 1}{self.where or where}"


def _views_column(records: list[Any], name: str, kinds: frozenset[type]) -> list[Any] | None:
    """Return a field of all records where each has it under that very name, of one of these types; else None. Pure."""
    try:
        values = [record[name] for record in records]
    except (KeyError, TypeError):  # a record without it, or none at all
        return None
    return values if kinds.issuperset(map(type, values)) else None


class _ViewsReader:
    """Reads the records of a JSON text as they come: an array, or objects on lines of their own (JSON lines).

    One object alone stands for its one array field, unless only lines are expected. It is no trust door: a repeated
    key takes its last value unless strict. It holds one block and one record, or the whole of an object alone. What
    follows the end of an array or stands between records is refused with its place.
    """

    def __init__(self, read: Callable[[int], bytes], name: str, *, secret: int, strict: bool = False,
                 lines: bool = False) -> None:
        import codecs
        import json.decoder

        self.read = read  #: number of bytes -> that many or fewer, none at the end
        self.name = name  #: what messages call the text
        self.secret = secret  #: a number that no text can be made to hold on purpose
        self.only_lines = lines  #: every value stands on a line of its own, even one alone
        self.decoder = codecs.getincrementaldecoder("utf-8")()  #: bytes -> text
        limit = getattr(sys, "get_int_max_str_digits", int)()
        decoder: Any = json.decoder.JSONDecoder(
            object_pairs_hook=_json_read_object if strict else None, parse_constant=_json_refuse_constant,
            parse_int=None if 0 < limit <= JSON_INT_DIGITS else _json_read_integer,  # int() itself counts the digits
        )
        self.scan: Any = decoder.scan_once  #: text, place -> value, end
        self.blank: Any = getattr(json.decoder, "WHITESPACE").match  #: text, place -> match of the white space there
        self.text = ""  #: what is read and not yet taken
        self.at = 0  #: where in text the next thing stands
        self.line, self.column = 1, 1  #: where the first character of text stands in the whole
        self.bytes = 0  #: read so far
        self.begun = False  #: whether the first character was read, which may be a byte order mark
        self.ended = False  #: whether text is the last of it
        self.member = ""  #: ' of "items"' once the records are those of an object's field
        self.between = ""  #: what stands around the comma between two items: '}, {"id"'
        self.tries = VIEWS_BLOCK_TRIES  #: how many blocks in a row may still turn out to be not fit for the fast way

    def batches(self) -> Iterator[list[Any]]:
        """Yield records, some at a time. Raises: BAD_REQUEST with the position of the fault, USAGE."""
        mark = self.peek()
        if mark == "[" and not self.only_lines:
            self.at += 1
            return self.array()
        if not mark and not self.only_lines:
            raise self.fault("there is no value")
        return self.lines()

    def array(self) -> Iterator[list[Any]]:
        """Yield the items of an array; nothing but white space may follow it."""
        mark = self.peek()
        while mark != "]":
            batch = self.block(",")
            if not self.peek():
                raise self.fault("an unfinished array")
            batch.append(self.value())
            mark = self.peek()
            if mark == ",":
                self.at += 1
                self.skip()
            elif mark != "]":
                raise self.fault("expected , or ] after an item of the array" if mark else "an unfinished array")
            yield batch
        self.at += 1
        if self.peek():
            raise self.fault("text after the end of the array")

    def lines(self) -> Iterator[list[Any]]:
        """Yield values that stand on lines of their own; a single object with one array stands for that array."""
        if not self.only_lines:
            value = self.value()
            if not self.skip_line():
                yield self.alone(value)
                return
            yield [value]
        while self.at < len(self.text):
            batch = self.block("\n")
            if self.peek():
                batch.append(self.value())
                self.skip_line()
            yield batch

    def alone(self, value: Any) -> list[Any]:
        """Return the records of a text that is one value. Raises: USAGE."""
        if isinstance(value, dict) and not any(isinstance(item, list) for item in value.values()):
            return [value]
        records, self.member = _views_collection(value, self.name)
        return records

    def block(self, mark: str) -> list[Any]:
        """Take the values that stand whole in this block with the mark behind them, fast where that can be done."""
        if self.tries:
            taken = self.take_lines() if mark == "\n" else self.take_items()
            if taken is not None:
                self.tries = VIEWS_BLOCK_TRIES
                return taken
        return self.take_single(mark)

    def take_items(self) -> list[Any] | None:
        """Take the items up to the last place where one seems to end, or None. Their parsing at once is the proof."""
        text, at = self.text, self.at
        cut = text.rfind(self.between, at) + 1 if self.between else 0
        taken = self.parse(text[at:cut]) if cut > at else None
        if taken is not None:
            self.at = text.index("{", cut)
        return taken

    def take_lines(self) -> list[Any] | None:
        """Take the lines that end in this block, or None.

        Line ends become commas with a secret number between them: only if each of these numbers comes back at its
        place among the values did every line hold one value, and no value a line end.
        """
        text, at = self.text, self.at
        cut = text.rfind("\n", at)
        ends = text.count("\n", at, max(cut, at))
        taken = self.parse(text[at:cut].replace("\n", f",{self.secret},")) if cut > at else None
        if taken is None or len(taken) != 2 * ends + 1 or taken[1::2].count(self.secret) != ends:
            return None
        self.at = cut + 1
        return taken[::2]

    def parse(self, items: str) -> list[Any] | None:
        """Return the values of a text that is values with commas between them, or None where it is not."""
        self.tries -= 1
        whole = f"[{items}]"
        try:
            taken, end = self.scan(whole, 0)
        except (StopIteration, ValueError, RecursionError):
            return None  # cut inside a value, or faulty: taken one by one it shows
        return list(taken) if end == len(whole) else None

    def take_single(self, mark: str) -> list[Any]:
        """Take the values that stand whole in this block with the mark behind them, one by one."""
        text, at, scan, blank = self.text, self.at, self.scan, self.blank
        taken: list[Any] = []
        learned = False  # whether these items have shown what now stands between two of them
        try:
            while True:
                value, end = scan(text, at)
                after = blank(text, end)
                place = after.end()
                if mark == "\n":
                    if "\n" not in after.group():
                        break
                else:
                    if text[place] != ",":
                        break
                    place = blank(text, place + 1).end()
                    if not learned and text[end - 1] == "}" and text[place] == "{":
                        key = text.find('"', text.find('"', place) + 1)
                        self.between, learned = text[end - 1:max(key, place) + 1], True
                taken.append(value)
                at = place
        except (StopIteration, ValueError, RecursionError, IndexError):
            pass  # what stands there is cut or faulty: value() finds out which
        self.at = at
        return taken

    def value(self) -> Any:
        """Return the value that stands at the current place, reading on until all of it is there."""
        while True:
            near = len(self.text) - VIEWS_CUT_CHARACTERS
            try:
                value, end = self.scan(self.text, self.at)
                if self.ended or end < near or not isinstance(value, (int, float)):
                    self.at = end
                    return value
                fault = _JsonFault("", position=end)  # a number may go on
            except StopIteration as stop:
                fault = _json_syntax_fault(self.text, "", stop.value)
            except RecursionError:
                raise self.fault("a value nested too deeply") from None
            except _JsonFault as said:
                fault = said
            except ValueError as error:
                fault, place = _JsonFault("an integer of too many digits"), getattr(error, "pos", None)
                if place is not None:
                    fault = _json_syntax_fault(self.text, getattr(error, "msg"), place)
            unclosed = fault.reason.startswith("a string without")
            if self.ended or fault.position is None or fault.position < near and not unclosed:
                self.at = max(self.at, fault.position or 0)
                raise self.fault(fault.reason)
            self.more()

    def peek(self) -> str:
        """Return the next character that is no white space, and go on to it; nothing at the end."""
        self.skip()
        return self.text[self.at:self.at + 1]

    def skip(self) -> bool:
        """Go on to the next character that is no white space; tell whether a line ended on the way."""
        lines = False
        while True:
            found = self.blank(self.text, self.at)
            lines = lines or "\n" in found.group()
            self.at = found.end()
            if self.at < len(self.text) or self.ended:
                return lines
            self.more()

    def skip_line(self) -> bool:
        """Go on to the next value, which must stand on another line; False where there is none."""
        if not self.skip() and self.at < len(self.text):
            raise self.fault("expected a line end between two values")
        return self.at < len(self.text)

    def more(self) -> None:
        """Read on: at least as much again as is held, so that a long value costs no square of its length."""
        self.line, self.column = self.place()
        data = self.read(max(VIEWS_BLOCK_BYTES, len(self.text) - self.at))
        self.ended = not data
        try:
            text = self.decoder.decode(data, self.ended)
        except UnicodeDecodeError as fault:
            place = self.bytes - len(self.decoder.getstate()[0]) + fault.start + 1
            raise Error("BAD_REQUEST", f"{self.name} is not UTF-8 at byte {place}") from None
        if text and not self.begun:
            self.begun = True
            text = text[text.startswith("\ufeff"):]
        self.bytes += len(data)
        self.text, self.at = self.text[self.at:] + text, 0

    def place(self) -> tuple[int, int]:
        """Return line and column of the current place, both from 1."""
        lines = self.text.count("\n", 0, self.at)
        column = self.at - self.text.rfind("\n", 0, self.at) if lines else self.column + self.at
        return self.line + lines, column

    def fault(self, said: str) -> Error:
        """Return the refusal of what stands at the current place."""
        line, column = self.place()
        return Error("BAD_REQUEST", f"{self.name} is not JSON at line {line}, column {column}: {said}")


def _views_reader(name: str) -> Callable[[dict[str, Any]], Any]:
    """Return a function that reads a field of a record: the exact key, else the dotted path, else TYPES_ABSENT."""
    steps = name.split(".")

    def read(record: dict[str, Any]) -> Any:
        value: Any = record.get(name, TYPES_ABSENT)
        if value is TYPES_ABSENT and len(steps) > 1:
            value = record
            for step in steps:
                value = value.get(step, TYPES_ABSENT) if type(value) is dict else TYPES_ABSENT
        return value

    return read


def _views_check_finite(value: float) -> None:
    """Refuse what JSON does not have: a number too large for a float reads as infinity. Raises: _JsonFault. Pure."""
    if value - value != 0:
        raise _JsonFault("an infinite number" if value == value else "NaN")


def _views_rank(value: Any) -> tuple[int, Any]:
    """Return a key that orders any two values: numbers, text, booleans, then arrays and objects. Pure."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, (int, float)):
        _views_check_finite(value)
        return 0, value
    if isinstance(value, str):
        return 1, value
    return 3, _json_canonical(value)


def _views_labels(keys: Iterable[Any], values: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the JSON key of each group, all different: text is itself, other values are their JSON text. Pure.

    Text that another group is already called by is written with its quotes; so is text that then looks the same.
    """
    labels = {key: repr(value) if value is TYPES_ABSENT else _json_canonical(value).decode("utf-8", "replace")
              for key, value in values.items()}
    taken = set(labels.values())
    for key in sorted((key for key in keys if key not in values), key=len):
        label = key
        while label in taken:
            label = _json_dumps(label)
        taken.add(label)
        labels[key] = label
    return labels


def _views_name(name: str) -> str:
    """Return a field name as messages show it. Pure."""
    return _env_human(name, limit=ERRORS_QUOTED_CHARACTERS)


def _views_table(records: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return records as aligned columns: numbers to the right, nothing cut, no control character. Pure."""
    columns = []
    for name in names:
        read = _views_reader(name)
        cells = [_views_cell(read(record)) for record in records]
        cells.insert(0, (_views_name(name), bool(cells) and all(number for _, number in cells)))
        widths = [_views_width(text) for text, _ in cells]
        column, widest = [], max(widths)
        for (text, number), width in zip(cells, widths):
            blank = " " * (widest - width)
            column.append(blank + text if number else text + blank)
        columns.append(column)
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns))


def _views_cell(value: Any) -> tuple[str, bool]:
    """Return (text, whether it is a number) of one cell; a missing field is blank."""
    if value is TYPES_ABSENT:
        return "", False
    if isinstance(value, str):
        return _env_human(value), False
    return _json_dumps(value), isinstance(value, (int, float)) and not isinstance(value, bool)


def _views_width(text: str) -> int:
    """Return how many terminal cells a text takes: East Asian wide ones count 2, combining marks 0. Pure."""
    if text.isascii():
        return len(text)
    import unicodedata

    width = 0
    for character in text:
        if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
            continue
        width += 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
    return width
# endregion VIEWS


# region HELP -- top-level and per-command help, search, completion scripts; pure text from the registry
# needs: LIMITS ERRORS JSON ENV FORMAT SCHEMA TYPES REG ARGV VIEWS
# Pages are plain text made from commands and fields; nothing here reads the environment, resolves an identity or
# knows the App. Every name, description, choice and default may come from a remote server, so all of it passes
# _env_human and is cut by the numbers of LIMITS; a schema may be deep, wide or refer to itself, so every walk over
# one is bounded. A row of a table is a label (`<action> | -a, --action`) and a text
#
#     <integer> [>=1, <=50] (required) — what it is for (default: 5; env: APP_COUNT)
#
# whose brackets show only what the schema declares. Completion scripts are one lookup table and one fixed body per
# shell; the table holds words of HELP_WORD_LETTERS alone and no shell ever evaluates one.

#: the types that a limit bounds, its keyword, what stands before its number; in the order in which a label shows them
HELP_BOUNDS = (
    ("integer number", "minimum", ">="),
    ("integer number", "exclusiveMinimum", ">"),
    ("integer number", "maximum", "<="),
    ("integer number", "exclusiveMaximum", "<"),
    ("integer number", "multipleOf", "multiple of "),
    ("string", "minLength", "length >="),
    ("string", "maxLength", "length <="),
    ("array", "minItems", "items >="),
    ("array", "maxItems", "items <="),
    ("object", "minProperties", "keys >="),
    ("object", "maxProperties", "keys <="),
)
HELP_COMPOSITIONS = (("anyOf", "any of: ", " | "), ("oneOf", "one of: ", " | "), ("allOf", "all of: ", " & "))
HELP_NO_ALIASES: Mapping[str, Any] = {}
HELP_NOT_EXPOSED = (
    "This program has commands, but none of them is on the command line: a command opts in with expose=(\"cli\",), "
    "all of them with App(..., expose=(\"cli\", \"agent\", \"mcp\"))."
)
HELP_DESTRUCTIVE = "Destructive: you are asked before it runs; --yes answers in advance."
HELP_SAFE_INTEGER = 2**53 - 1  # servers written in JavaScript declare it on every integer; it is the type, not a bound
HELP_WORD_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+=-")


def _help_line(text: str, limit: int) -> str:
    """Return foreign text as one safe line of at most ``limit`` characters. Pure."""
    return _env_human(" ".join(text[: limit * 2].split()), limit=limit)


def _help_columns(text: str) -> int:
    """Return how many terminal columns the text takes; the signs of our own pages need no table of widths. Pure."""
    return _views_width(_help_plain(text).replace("...", "."))


def _help_plain(text: str) -> str:
    """Return a page for a stream that carries ASCII alone, so that no escape stands for a dash. Pure."""
    return text.replace("—", "-").replace("…", "...")


def _help_wrap(text: str, width: int, head: str = "", indent: str = "") -> list[str]:
    """Fill lines of ``width`` columns with the words of one line; ``head`` begins the first, ``indent`` others. Pure.

    A word is never broken, since it may be an address that someone copies. U+00A0 keeps two words together and becomes
    a blank; it never comes from outside (_help_line).
    """
    lines, gap = [head], ""
    for word in text.split(" "):
        if gap and _help_columns(lines[-1] + gap + word) > width:
            lines.append(indent)
            gap = ""
        lines[-1] += gap + word
        gap = " "
    return [line.rstrip().replace("\xa0", " ") for line in lines]


def _help_rows(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Lay out a table: labels on the left, wrapped text beside them; a long label has a line of its own. Pure."""
    limit = min(HELP_LABEL_COLUMNS, width // 2)
    sizes = [_help_columns(label) for label, _ in rows]
    column = max([size for size in sizes if size <= limit], default=0) + 4
    lines = []
    for (label, text), size in zip(rows, sizes):
        head = "  " + label + " " * (column - size - 2)
        if size + 4 > column and text:
            lines.append(head)
            head = " " * column
        lines += _help_wrap(text, width, head, " " * column)
    return lines


def _help_paragraphs(text: str, width: int) -> list[str]:
    """Return a description as filled paragraphs; one with indented lines or list items keeps its own lines. Pure."""
    text = text.strip().replace("\r\n", "\n").replace("\xa0", " ").expandtabs(4)
    lines: list[str] = []
    for block in filter(None, _env_human(text, lines=True, limit=HELP_PAGE_CHARACTERS).split("\n\n")):
        rows = block.strip("\n").split("\n")
        kept = any([row.startswith((" ", "- ", "* ")) for row in rows])
        for row in rows if kept else (" ".join(rows),):
            margin = " " * min(len(row) - len(row.lstrip(" ")), width // 2)
            lines += _help_wrap(row.strip(" "), width, margin, margin + "  " * kept)
        lines.append("")
    return lines[:-1]


def _help_summary(text: str) -> str:
    """Return the first sentence of a description, in one short line without its full stop. Pure.

    >>> _help_summary("Add a task, e.g. for\\ntomorrow. It is kept in a file."), _help_summary("")
    ('Add a task, e.g. for tomorrow', '')
    """
    line, *others = text.strip()[:HELP_FIELD_CHARACTERS].split("\n")
    for other in others:
        if not other.strip()[:1].islower():
            break
        line += " " + other
    sentence: list[str] = []
    for word in line.split():
        if sentence and sentence[-1].find(".") == len(sentence[-1]) - 1 and not word[0].islower():
            break
        sentence.append(word)
    line = _help_line(" ".join(sentence), HELP_SUMMARY_COLUMNS)
    return line[:-1] if line.endswith(".") and not line.endswith("..") else line


# Types and bounds


def _help_word(value: Any) -> str:
    """Return a choice, default or example as a person would type it; text that would mislead bare is quoted. Pure."""
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' |"\'\\'):
        return _help_line(value, HELP_WORD_CHARACTERS)
    return _json_show(value, HELP_WORD_CHARACTERS)


def _help_listed(items: Sequence[Any], show: Callable[[Any], str], sign: str) -> str:
    """Join the first HELP_CHOICES items as they are shown and count the rest. Pure."""
    shown = [show(item) for item in items[:HELP_CHOICES]]
    if len(items) > HELP_CHOICES:
        shown.append("... %s more" % format(len(items) - HELP_CHOICES, ","))
    return sign.join(shown)


def _help_label(schema: Any, root: Any, nodes: list[int]) -> tuple[str, str]:
    """Return the name of a type and its bounds in brackets (or nothing); nodes[0] counts down over a label. Pure.

    The name is that of its choices, its format, `element…` of an array, or the JSON type.
    """
    nodes[0] -= 1
    schema = _schema_resolve(schema, root)
    if not isinstance(schema, dict) or nodes[0] < 0:
        return ("nothing" if schema is False else "value"), ""
    choices = _types_literals(schema)
    composed = [form for form in HELP_COMPOSITIONS if form[0] in schema]
    kind = schema.get("type")
    if isinstance(kind, list):
        if len(kind) > 1 and not composed and choices is None:
            return _help_label({"anyOf": [dict(schema, type=each) for each in kind]}, root, nodes)
        kind = kind[0] if len(kind) == 1 else None
    name = kind or "value"
    if choices:
        name = _help_listed(choices, _help_word, "|")
    elif kind == "array":
        name, more = _help_label(schema.get("items", True), root, nodes)
        name = "value…" if more or name == "string" or name.endswith("…") else name + "…"
    elif kind == "string":
        form = schema.get("format", schema.get("contentEncoding"))
        name = form if form in (*FORMAT_CHECKS, "base64", "path") else kind
    bounds = [
        words + _json_show(schema[keyword], HELP_WORD_CHARACTERS)
        for kinds, keyword, words in HELP_BOUNDS
        if keyword in schema and (kind is None or kind in kinds)
        and not (kind == "integer" and abs(schema[keyword]) == HELP_SAFE_INTEGER)
    ]
    if schema.get("uniqueItems") and kind in ("array", None):
        bounds.append("items unique")
    if name == "value" and not bounds and len(composed) == 1 and len(schema[composed[0][0]]) == 1:
        return _help_label(schema[composed[0][0]][0], root, nodes)
    bounds += [title + _help_listed(schema[keyword], lambda part: "".join(_help_label(part, root, nodes)), sign)
               for keyword, title, sign in composed]
    return name, " [" + ", ".join(bounds) + "]" if bounds else ""


def _help_type(schema: Any, root: Any) -> str:
    """Return the label of a schema with the bounds it declares, for example ``<integer> [>=1, <=50]``. Pure.

    A composition keeps its meaning: ``<value> [any of: string [length >=1] | null]``.
    """
    return _help_line("<%s>%s" % _help_label(schema, root, [HELP_TYPE_NODES]), HELP_TYPE_CHARACTERS)


def _help_schema(option: _ArgvOption) -> dict[str, Any]:
    """Return what a row shows of a field as a schema: `X | None = None` as X where X has no bounds of its own. Pure."""
    field, schema = option.field, _schema_resolve(option.schema, option.root)
    schema = dict(schema) if isinstance(schema, dict) else {}
    others = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    if field.dashed and field.default is None and len(others) == 1:
        # Leaving the option out is how a person writes None; the label need not say it a second time.
        if not _help_label(others[0], option.root, [HELP_TYPE_NODES])[1]:
            schema = dict(_schema_resolve(others[0], option.root))
    default = None if field.default is TYPES_ABSENT else field.default
    return dict(schema, default=default, description=field.help, **({"format": "path"} if field.path else {}))


def _help_choices(schema: Any, root: Any) -> list[Any]:
    """Return the values that enum and const offer for a value or, where it is an array, for its elements. Pure."""
    leaves = _types_leaves(schema, root)
    for leaf in list(leaves):
        leaves += _types_leaves(leaf["items"], root) if "items" in leaf and "array" in _types_leaf_kinds(leaf) else []
    return [value for leaf in leaves for value in _types_literals(leaf) or ()][:HELP_COMPLETION_WORDS]


# Arguments


def _help_row(label: str, schema: Any, option: _ArgvOption, required: str, more: Sequence[str] = ()) -> tuple[str, str]:
    """Return the row of an option or a part of one: type, help text, and in brackets default, pattern and more. Pure.

    A default that is or holds a secret is never shown.
    """
    about = _schema_resolve(schema, option.root)
    about = about if isinstance(about, dict) else {}
    default, facts = about.get("default"), list(more)
    if default is not False and default not in (None, "", [], {}) and not option.secret:
        facts.insert(0, "default: " + _help_word(default))
    if "pattern" in about:
        facts.append("pattern: " + _help_line(about["pattern"], HELP_WORD_CHARACTERS))
    if about.get("type") == "array":
        each = "".join(_help_label(about.get("items", True), option.root, [HELP_TYPE_NODES]))
        facts += ["each: " + _help_line(each, HELP_TYPE_CHARACTERS)] if " [" in each else []
    text = about.get("description")  # an annotation may be anything
    text = _help_line(text, HELP_FIELD_CHARACTERS) if isinstance(text, str) else ""
    shown = _help_type(schema, option.root) + required + (" —\xa0" + text if text else "")
    return label, shown + (" (" + "; ".join(facts) + ")" if facts else "")


def _help_dotted(found: dict[str, Any], label: str, schema: Any, must: bool, root: Any, level: int = 0) -> None:
    """Enter option -> (schema, required) of every leaf that dotted options below this one reach, until it is full."""
    leaves = [leaf for leaf in _types_leaves(schema, root) if level < HELP_MEMBER_LEVELS
              and (leaf.get("properties") or _types_leaf_kinds(leaf) == {"object"})]
    before = len(found)
    for name in {name: None for leaf in leaves for name in leaf.get("properties") or ()}:
        # What the dotted spelling cannot reach is given as JSON of the whole field.
        if name and not set(name) & set(".=\\") and not name.endswith(":") and len(found) <= HELP_MEMBER_ROWS:
            needed = all(name in leaf.get("required", ()) for leaf in leaves)
            option = label + "." + _help_line(name, HELP_WORD_CHARACTERS)
            _help_dotted(found, option, _types_member(schema, name, root), needed, root, level + 1)
    for leaf in leaves:
        free = leaf.get("additionalProperties", not leaf.get("properties"))
        if free is not False:
            # Under a key that nothing describes a dotted value stays the text it is.
            found[label + ".<key>"] = (free if free and isinstance(free, dict) else {"type": "string"}), False
    if level and len(found) == before:
        found[label] = schema, must


def _help_arguments(grammar: _ArgvLine, options: Mapping[str, _ArgvOption]) -> list[tuple[str, str]]:
    """Return the rows of options of fields, spelled as the parser does, with their dotted options below. Pure."""
    shorts = {option: word + ", " for word, option in grammar.words.items() if word[1:2] != "-"}
    rows = []
    for option in options.values():
        field = option.field
        place = _help_place(option, grammar) + " | " if option in grammar.positionals else ""
        required = " (required)" if field.required else ""
        facts = [text for holds, text in (
            (field.default is True, "off: --no-" + option.shown[2:]),
            (field.secret and field.required, "asked for when missing"),
            (field.env, "env: " + _help_word(field.env)),
            (field.example is not None, "example: " + _help_word(field.example)),
        ) if holds]
        label = place + shorts.get(option, "") + option.shown
        rows.append(_help_row(label, _help_schema(option), option, required, facts))
        parts: dict[str, Any] = {}
        _help_dotted(parts, option.shown, option.schema, False, option.root)
        for label, (schema, must) in list(parts.items())[:HELP_MEMBER_ROWS]:
            needed = "" if not must else required or " (required with %s)" % option.shown
            rows.append(_help_row("  " + label, schema, option, needed))
        if len(parts) > HELP_MEMBER_ROWS:
            rows.append(("  " + option.shown + "...", "and more; the whole can be given as JSON"))
    return rows


def _help_place(option: _ArgvOption, grammar: _ArgvLine) -> str:
    """Return a positional as usage lines write it: <name>, [name], <name...>. Pure."""
    name = _help_line(option.field.public_name, HELP_WORD_CHARACTERS) + "..." * (option is grammar.tail)
    return "<" + name + ">" if option.field.required else "[" + name + "]"


# Pages


def _help_titled(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    return [title, *_help_rows(rows, width)] if rows else []


def _help_page(blocks: Iterable[Sequence[str]]) -> str:
    """Join blocks of lines into a page, with a blank line between them; empty ones are left out. Pure."""
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _help_top(
    *,
    name: str,
    version: str,
    description: str,
    commands: Sequence[Command],
    default: str | None,
    app_fields: Sequence[Field],
    app_root: Any = True,
    notes: Sequence[str] = (),
    program_options: Sequence[tuple[str, str, str, str]] = REG_OPTIONS,
    width: int = HELP_WIDTH_MAX_COLUMNS,
    hint_no_commands: bool = False,
) -> str:
    """Return the top-level help. Pure.

    notes: reasons why something is missing, a line each. hint_no_commands: there are commands, none on this surface.
    """
    width = min(max(width, HELP_WIDTH_MIN_COLUMNS), HELP_WIDTH_MAX_COLUMNS)
    shown = [command for command in commands if not command.hidden]
    place = "" if not shown else " [command] [args]" if default is not None else " <command> [args]"
    hint = f"Run '{name} <command> --help' for one command, '{name} --help <text>' to search."
    grammar = _ArgvLine(app_fields=app_fields, app_root=app_root)
    return _help_page([
        [_help_line(name + " " + version, HELP_NOTE_CHARACTERS), *_help_paragraphs(description, width)],
        ["Usage: " + name + place + " [--flags]"],
        _help_titled("Commands:", [
            (command.name, _help_summary(command.description) + " (default)" * (command.name == default))
            for command in shown
        ], width),
        _help_wrap(HELP_NOT_EXPOSED, width) if hint_no_commands else [],
        *([_help_line(note, HELP_NOTE_CHARACTERS)] for note in notes),
        _help_titled("Global options:", [
            ("-h, --help" if option == "help" else ("--" + option + " " + metavar).rstrip(), text)
            for option, _kind, metavar, text in program_options
        ], width),
        _help_titled("Application options:", _help_arguments(grammar, grammar.shared), width),
        _help_wrap(hint, width) if shown else [],
    ])


def _help_example(example: str, name: str, command: str) -> list[str]:
    """Return an example as a whole command line, whether it was written with or without its first words. Pure."""
    text = _env_human(example.strip(), lines=True, limit=HELP_FIELD_CHARACTERS)
    first = text.split(" ", 1)[0].split("\n")[0]
    if first not in (name, "$", "#"):
        text = name + " " + ("" if first == command else command + " ") + text
    return ["  " + line.rstrip() for line in text.split("\n")]


def _help_command(
    *,
    name: str,
    command: Command,
    positionals: Sequence[str] | None = None,
    aliases: Mapping[str, str] = HELP_NO_ALIASES,
    app_fields: Sequence[Field] = (),
    app_root: Any = True,
    width: int = HELP_WIDTH_MAX_COLUMNS,
    passthrough: str | None = None,
) -> str:
    """Return the help of one command; its usage comes from the grammar and policy that the parser follows. Pure.

    Raises: REGISTRATION_ERROR when the command's schema is faulty.
    """
    width = min(max(width, HELP_WIDTH_MIN_COLUMNS), HELP_WIDTH_MAX_COLUMNS)
    extra = passthrough or command.passthrough
    grammar = _ArgvLine(name=command.name, fields=command.fields, root=command.input.schema, app_fields=app_fields,
                        app_root=app_root, aliases=aliases, positionals=positionals, passthrough=extra)
    rows = _help_arguments(grammar, grammar.own)
    if extra is not None:
        rows.append(("--<other>", "<value> —\xa0any other option, passed on as it was written"))
    head = "Usage: " + name + " " + command.name + " "
    usage = " ".join([*(_help_place(option, grammar) for option in grammar.positionals), "[--flags]"])
    examples = [line for example in command.examples for line in _help_example(example, name, command.name)]
    return _help_page([
        _help_paragraphs(command.description, width),
        _help_wrap(HELP_DESTRUCTIVE, width) if command.destructive else [],
        _help_wrap(usage, width, head, " " * min(len(head), width // 2)),
        _help_titled("Arguments:", rows, width),
        ["Examples:", *examples] if examples else [],
        _help_titled("Application options:", _help_arguments(grammar, grammar.shared), width),
        _help_wrap(f"Run '{name} --help' for the options that every command has.", width),
    ])


def _help_search(
    *, commands: Sequence[Command], needle: str, width: int = HELP_WIDTH_MAX_COLUMNS
) -> tuple[str, list[Command]]:
    """Return (text, matches) of the commands whose name, description or keywords hold the needle, in any case. Pure.

    Names come before descriptions. The text is empty when nothing matches.
    """
    shown = [command for command in commands if not command.hidden]
    wanted = _help_fold(needle)
    matches = [
        command for command in shown
        if wanted in _help_fold("\n".join((command.name, command.description, *command.keywords)))
    ]
    matches.sort(key=lambda command: wanted not in _help_fold(command.name))
    if not matches:
        return "", []
    quoted = _help_line(needle, HELP_WORD_CHARACTERS)
    title = f'Commands matching "{quoted}" ({len(matches)} of {len(shown)}):'
    rows = [(item.name, _help_summary(item.description)) for item in matches]
    return _help_page([_help_titled(title, rows, width)]), matches


def _help_fold(text: str) -> str:
    return text.casefold().replace("_", "-")


def _help_no_match(needle: str, total: int, near: Sequence[str] = ()) -> Error:
    """Return the NOT_FOUND of a search without a match; ``near`` are names like the needle. Pure."""
    message = f'No command matches "{_help_line(needle, HELP_WORD_CHARACTERS)}" (0 of {total})'
    message += f"; did you mean {' or '.join(near)}?" if near else ""
    return Error("NOT_FOUND", message, hint="use --help without a word to list every command")


# Completion
#
# One table for three shells. A key is what stands on the line: the command, a blank, then an option, the number of a
# positional, + for the list that ends them, or - for "which options"; with no command, a name alone asks for its exact
# spelling and = for all names. An answer is a kind (words, files, flag, value) and words. The shell finds a key by
# `case`: nothing that a user typed or a server sent is expanded, globbed or evaluated.

HELP_SHELLS = ("bash", "zsh", "fish")
HELP_SHELL_TABLE = r"""@F@_row() {
    local key
    for key in "$1 $2" " $2"; do
        case $key in
@ROWS@
            *) continue ;;
        esac
        return 0
    done
    kind='' list=''
}
@F@() {
    local cmd='@DEFAULT@' named='' takes='' word='' kind='' list='' before='' cur=''
    local IFS=$' \t\n' count=0 literal=0
"""
HELP_SHELL_SCAN = r"""
        if [[ -n $takes ]]; then takes=''; continue; fi
        if [[ $literal = 0 ]]; then
            case $word in
                --) literal=1; continue ;;
                --*=*|-[A-Za-z]=*) continue ;;
                --*|-[A-Za-z])
                    @F@_row "$cmd" "$word"
                    case $kind in words|files|value) takes=$word ;; esac
                    continue ;;
            esac
        fi
        if [[ -n $named ]]; then count=$((count + 1)); continue; fi
        @F@_row '' "$word"
        named=1 cmd=${list:-$word}
    done
    if [[ -n $takes ]]; then
        @F@_row "$cmd" "$takes"
    elif [[ $literal = 0 && ( $cur = --*=* || $cur = -[A-Za-z]=* ) ]]; then
        before=${cur%%=*}=
        @F@_row "$cmd" "${cur%%=*}"
    elif [[ $literal = 0 && $cur = -* ]]; then
        @F@_row '' -
        word=$list
        if [[ -n $cmd ]]; then @F@_row "$cmd" -; list="$list $word"; fi
    elif [[ -z $named ]]; then
        @F@_row '' '='
    else
        @F@_row "$cmd" "$count"
        if [[ -z $kind ]]; then @F@_row "$cmd" +; fi
    fi
"""
HELP_BASH = r"""# bash completion for @P@; load it with: eval "$(@P@ completion bash)"
@TABLE@    local joined=0 i
    local -a line
    line=()
    COMPREPLY=()
    # Most versions of bash cut words at = and : as well; here they go back together.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ ${#line[@]} -gt 0 && -n $word && ( $joined = 1 || $word = [=:]* ) ]]; then
            line[${#line[@]}-1]=$cur$word
        else
            line[${#line[@]}]=$word
        fi
        cur=${line[${#line[@]}-1]} joined=0
        if [[ $word = [=:]* ]]; then joined=1; fi
    done
    for ((i = 0; i < ${#line[@]} - 1; i++)); do
        word=${line[i]}@SCAN@
    # Where there is no answer of ours readline offers files; that is right for files alone.
    if [[ $kind = files ]]; then return 0; fi
    compopt +o default 2>/dev/null
    # Only what follows the last of those breaks is replaced; cmd holds what stays.
    cmd=''
    if [[ ${COMP_WORDBREAKS-} = *=* ]]; then cmd=${cur%"${cur##*=}"}; fi
    if [[ ${COMP_WORDBREAKS-} = *:* && ${cur#"$cmd"} = *:* ]]; then cmd=${cur%"${cur##*:}"}; fi
    for word in $list; do
        word=$before$word
        if [[ $word = "$cur"* ]]; then COMPREPLY[${#COMPREPLY[@]}]=${word#"$cmd"}; fi
    done
    return 0
}
complete -o default -F @F@ @P@
"""
HELP_ZSH = r"""#compdef @P@
# zsh completion for @P@; keep it as _@P@ in a folder of $fpath, or load it with: source <(@P@ completion zsh)
@TABLE@    local i
    cur=$PREFIX
    for ((i = 2; i < CURRENT; i++)); do
        word=${(Q)words[i]}@SCAN@
    if [[ -n $before ]]; then compset -P 1 '*='; fi
    if [[ $kind = files ]]; then _files; else compadd -- ${=list}; fi
}
if [[ ${funcstack[1]} = _@P@ ]]; then @F@ "$@"; elif (( $+functions[compdef] )); then compdef @F@ @P@; fi
"""
HELP_FISH = r"""# fish completion for @P@; load it with: @P@ completion fish | source
function @F@_row
    for key in "$argv[1] $argv[2]" " $argv[2]"
        switch "$key"
@ROWS@
            case '*'
                continue
        end
        return
    end
end
function @F@
    set -l cur (commandline -ct); set -l cmd '@DEFAULT@'; set -l count 0; set -l literal 0
    set -l named; set -l takes; set -l before; set -l row
    for word in (commandline -opc)[2..-1]
        if test -n "$takes"
            set takes ''
        else if test "$literal$word" = 0--
            set literal 1
        else if test $literal = 0; and string match -qr -- '^(--|-[A-Za-z]($|=))' "$word"
            set row (@F@_row "$cmd" "$word")
            if contains -- "$row[1]" words files value
                set takes $word
            end
        else if test -n "$named"
            set count (math $count + 1)
        else
            set row (@F@_row '' "$word")
            set named 1
            set cmd "$row[2]"
            test -n "$cmd"; or set cmd $word
        end
    end
    if test -n "$takes"
        set row (@F@_row "$cmd" "$takes")
    else if test $literal = 0; and string match -qr -- '^(--.*|-[A-Za-z])=' "$cur"
        set before (string replace -r -- '=.*' '=' "$cur")
        set row (@F@_row "$cmd" (string replace -r -- '=.*' '' "$cur"))
    else if test $literal = 0; and string match -q -- '-*' "$cur"
        set row (@F@_row "$cmd" -) (@F@_row '' -)[2..-1]
    else if test -z "$named"
        set row (@F@_row '' '=')
    else
        set row (@F@_row "$cmd" $count)
        test -n "$row[1]"; or set row (@F@_row "$cmd" +)
    end
    if test "$row[1]" = files
        set row files (__fish_complete_path (string replace -- "$before" '' "$cur"))
    end
    for word in $row[2..-1]
        printf '%s\n' "$before$word"
    end
end
complete -c @P@ -f -a '(@F@)'
"""


def _help_is_word(text: Any) -> bool:
    return isinstance(text, str) and text != "" and HELP_WORD_LETTERS.issuperset(text)


def _help_offer(option: _ArgvOption) -> tuple[str, list[str]]:
    """Return (kind, words) of what a shell offers as a value of an option. Pure."""
    if option.kind in (ARGV_FLAG, ARGV_HELP):
        return "flag", ["true", "false"]
    if option.field.path:
        return "files", []
    choices = [choice for choice in _help_choices(option.schema, option.root) if choice is not None]
    texts = [choice if isinstance(choice, str) else _json_show(choice, HELP_WORD_CHARACTERS) for choice in choices]
    words = list(filter(_help_is_word, dict.fromkeys(texts)))
    return "words" if words else "value", words


def _help_option_rows(owner: str, grammar: _ArgvLine, homes: Collection[int]) -> list[tuple[str, str, list[str]]]:
    """Return the table rows of the options of some homes; the last one lists the options themselves. Pure."""
    rows, listed = [], []
    for word, option in grammar.words.items():
        if option.home in homes and _help_is_word(word):
            rows.append((owner + " " + word, *_help_offer(option)))
            listed += [word] if word == option.shown or word[1:2] != "-" else []
            if word == option.shown and option.kind == ARGV_FLAG and option.field.default is True:
                listed.append("--no-" + word[2:])
    return rows + [(owner + " -", "words", listed)]


def _help_completion(
    shell: str,
    program: str,
    commands: Sequence[Command],
    app_fields: Sequence[Field] = (),
    aliases: Mapping[str, Mapping[str, str]] = HELP_NO_ALIASES,
    positionals: Mapping[str, Sequence[str]] = HELP_NO_ALIASES,
    default: str | None = None,
    passthrough: Mapping[str, str] = HELP_NO_ALIASES,
    app_root: Any = True,
) -> str:
    """Return the completion script of a program for bash, zsh or fish. Pure.

    Only words of HELP_WORD_LETTERS are offered; a command, option or choice that needs others is left out.
    Raises: BAD_REQUEST for another shell or a program name that no script can hold; REGISTRATION_ERROR.
    """
    if shell not in HELP_SHELLS:
        raise Error("BAD_REQUEST", f"there is no completion for the shell {_json_show(shell)}; "
                    "choose bash, zsh or fish")
    if not _help_is_word(program) or program.startswith("-") or set(program) & set("@/:%="):
        raise Error("BAD_REQUEST", "a completion script needs a program name of letters, digits and _ . - alone, "
                    f"not {_json_show(program)}")
    shown = [command for command in commands if not command.hidden and _help_is_word(command.name)]
    names = [command.name for command in shown]
    rows = [(" =", "words", names)]
    spelled = ((name.replace("_", "-"), name) for name in names)
    rows += [(" " + dashed, "name", [name]) for dashed, name in spelled if dashed not in names and dashed[0] != "-"]
    for command in shown:
        owner = command.name
        grammar = _ArgvLine(
            name=owner, fields=command.fields, root=command.input.schema, app_fields=app_fields,
            positionals=positionals.get(owner), aliases=aliases.get(owner),
            passthrough=passthrough.get(owner, command.passthrough))
        rows += _help_option_rows(owner, grammar, (ARGV_ARGS,))
        for number, option in enumerate(grammar.positionals):
            rows.append((owner + (" +" if option is grammar.tail else " %d" % number), *_help_offer(option)))
    grammar = _ArgvLine(app_fields=app_fields, app_root=app_root, leading=True)
    rows += _help_option_rows("", grammar, (ARGV_GLOBALS, ARGV_OPTIONS))
    return _help_script(shell, program, rows, default or "")


def _help_script(shell: str, program: str, rows: Sequence[tuple[str, str, list[str]]], default: str) -> str:
    """Put the table into the body of a shell; its words were checked, so that plain quote marks are enough. Pure."""
    form = "            '%s') kind=%s list='%s' ;;"
    if shell == "fish":
        form = "            case '%s'\n                string split -n -- ' ' '%s %s'"
    lines = [form % (key, kind, " ".join(words)) for key, kind, words in rows]
    function = "_" + "".join([letter if letter.isalnum() else "_%02x" % ord(letter) for letter in program])
    text = {"bash": HELP_BASH, "zsh": HELP_ZSH, "fish": HELP_FISH}[shell]
    for mark, part in (("TABLE", HELP_SHELL_TABLE), ("SCAN", HELP_SHELL_SCAN.rstrip("\n")), ("DEFAULT", default),
                       ("F", function), ("P", program), ("ROWS", "\n".join(lines))):
        text = text.replace("@" + mark + "@", part)
    return text
# endregion HELP


# region FETCH -- guarded HTTP; downloads
# needs: LIMITS ERRORS JSON ENV FILES PATHS FORMAT REG
# One client for everything that is taken from the network. What a hop may be is decided before it is made:
#
#     URL        http or https, no user name or password, no blank, control character or backslash
#     host       ASCII by IDNA, then judged again; an address in any but its plain spelling is refused, never looked up
#     addresses  one look-up per hop; every address of the answer must be public by FETCH_BLOCKS, and the connection
#                goes to an address that was judged, while the Host header and the TLS name stay those of the URL
#     redirect   judged like a new URL; never from https to http; another origin gets no credentials
#
# One deadline holds up to the final headers and one for the body, both set on every read; bytes are counted before and
# after decompression. TLS is always verified. Proxies of the environment are used when asked for in so many words.
# Messages show no query, no user name and no body. Downloads land complete or not at all, and never on another file.

FETCH_PORTS = {"http": 80, "https": 443}
FETCH_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
FETCH_KEEPING_STATUSES = (307, 308)  # redirects that repeat the method and the body
FETCH_BODYLESS_STATUSES = (204, 304)
FETCH_TOKEN = FORMAT_ALNUM | frozenset("!#$%&'*+-.^_`|~")  # RFC 9110 5.6.2
FETCH_NAME = FORMAT_ALNUM | frozenset("-_")  # of a label: what resolvers take, the underscore included
FETCH_PATH = FORMAT_ALNUM | frozenset("-._~:/?[]@!$&'()*+,;=%")  # RFC 3986 2: everything else is sent percent-encoded
FETCH_OWN_HEADERS = frozenset(  # what frames a message, or belongs to a parameter of fetch
    "host connection content-length transfer-encoding te trailer upgrade expect keep-alive accept-encoding".split()
)
FETCH_FREE_HEADERS = frozenset(  # what another origin may see: X-Api-Key is a credential as much as Cookie is
    "accept accept-language content-type if-match if-modified-since if-none-match range user-agent".split()
)
FETCH_BODY_METHODS = ("POST", "PUT", "PATCH")  # whose empty body has a length too
FETCH_LOCAL_NAMES = ("localhost", "localdomain", "local", "internal")  # themselves and everything below them
FETCH_FILE_REFUSED = frozenset('<>:"|?*/\\')  # in no file name of Windows
FETCH_FILE_DISGUISED = FETCH_FILE_REFUSED | frozenset(". ")  # and what no other character may stand for
FETCH_FILE_FIRST = ".-~ "  # hides a file, or means something to a shell
FETCH_LOOPBACK = "this machine"  # why of the addresses that never leave it

#: Addresses that are not public: network and why, one entry a block. Everything else of IPv4 is; of IPv6, 2000::/3 is.
FETCH_BLOCKS = (
    ("0.0.0.0/8", "this host or network"),
    ("10.0.0.0/8", "a private network"),
    ("100.64.0.0/10", "shared inside a provider's network"),
    ("127.0.0.0/8", FETCH_LOOPBACK),
    ("168.63.129.16/32", "the host of an Azure machine"),
    ("169.254.0.0/16", "link-local, where cloud metadata is served"),
    ("172.16.0.0/12", "a private network"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "AS112, a sink for private names"),
    ("192.52.193.0/24", "AMT relays"),
    ("192.88.99.0/24", "6to4 relays"),
    ("192.168.0.0/16", "a private network"),
    ("192.175.48.0/24", "AS112, a sink for private names"),
    ("198.18.0.0/15", "benchmarks"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved, or broadcast"),
    ("::1/128", FETCH_LOOPBACK),
    ("::/96", "an IPv4 address inside an IPv6 one"),
    ("::/16", "special forms, the empty address too"),
    ("64:ff9b:1::/48", "NAT64 inside a network"),
    ("100::/32", "discarded, or reserved"),
    ("2001::/32", "Teredo, which hides an IPv4 address"),
    ("2001::/23", "protocol assignments"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4, which hides an IPv4 address"),
    ("2620:4f:8000::/48", "AS112, a sink for private names"),
    ("3fff::/16", "documentation"),
    ("5f00::/16", "segment routing"),
    ("fc00::/7", "a private network"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
    ("::/3", "not assigned to anyone"),
    ("4000::/2", "not assigned to anyone"),
    ("8000::/1", "not assigned to anyone"),
)
#: IPv6 networks whose last 32 bits are an IPv4 address, which alone decides: mapped (RFC 4291) and NAT64 (RFC 6052).
FETCH_CARRIERS = ("::ffff:0:0/96", "64:ff9b::/96")


def fetch(url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None,
          allow_private_hosts: bool = False, https_only: bool = False, compressed: bool = False,
          max_bytes: int = FETCH_BODY_BYTES, timeout: float = FETCH_HEADERS_SECONDS,
          body_timeout: float = FETCH_BODY_SECONDS, max_redirects: int = FETCH_REDIRECTS, proxy: str | None = None,
          ssl_context: Any = None, cancel: Cancel | None = None, env: Env | None = None) -> _FetchResponse:
    """Fetch a URL that may come from a document nobody trusts; return the answer, whatever its status.

    The answer has ``status``, ``reason``, ``headers`` (names in lower case; repeated ones joined with ", "), ``url``
    (the one that answered) and ``body`` (bytes). Uses the network.

    allow_private_hosts: names and addresses inside your own network too, also by redirect; set it for a URL that you
    wrote, not for one that a document holds. https_only: plain http only to this machine itself, where private hosts
    are allowed. compressed: ask for gzip or deflate and undo it; otherwise the bytes are those that the server sent.
    max_bytes: of the body, before and after decompression. timeout: seconds up to the headers, with look-ups,
    connections and redirects; body_timeout: seconds from there to the end. max_redirects: 0 returns a redirect instead
    of following it. A redirect to another origin carries no credentials: only headers like Accept are repeated there,
    and a body never is. proxy: ``"environment"`` uses HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY; a proxy looks
    names up itself, so addresses are not checked then. ssl_context: for certificates of your own authority; one that
    does not verify is refused. cancel: ends the wait within a quarter of a second.

    Raises: FORBIDDEN (a rule of this guard; the sentence names its switch if it has one), BAD_REQUEST (an option cannot
    be used), CONNECTION_REQUEST_FAILED, CONNECTION_TIMEOUT, CONNECTION_RESPONSE_TOO_LARGE, REQUEST_ABORTED.
    """
    request = _FetchRequest(
        url, env or Env(), method=method, headers=headers, body=body, private=allow_private_hosts,
        https_only=https_only, compressed=compressed, max_bytes=max_bytes, timeout=timeout, body_timeout=body_timeout,
        proxy=proxy, max_redirects=max_redirects, ssl_context=ssl_context, cancel=cancel,
    )  # fmt: skip
    response = _fetch_open(request)
    response.body = b"".join(response.chunks())
    return response


# A URL is (scheme, host, whether that is an address, port, target): the scheme is "http" or "https"; the host a name in
# ASCII and lower case without a final dot, or an address without brackets; the target path and query, percent-encoded.


def _fetch_authority(url: tuple[Any, ...]) -> str:
    """Return the Host header of a URL. Pure."""
    scheme, host, _, port, _ = url
    host = f"[{host}]" if ":" in host else host
    return host if port == FETCH_PORTS[scheme] else f"{host}:{port}"


def _fetch_origin(url: tuple[Any, ...]) -> str:
    """Return what the credentials for a URL belong to. Pure."""
    return f"{url[0]}://{_fetch_authority(url)}"


def _fetch_shown(url: tuple[Any, ...]) -> str:
    """Return a URL for people, without its query. Pure."""
    return _json_show(_fetch_origin(url) + url[4].partition("?")[0], FETCH_SHOWN_CHARACTERS)


class _FetchRequest:
    """What is asked for, under which rules, and how far it has come: the hop and its connection, the deadline."""

    switch = "allow_private_hosts=True"  #: what lifts the rule about private hosts, as the user would write it
    method = "GET"  #: any word
    headers: Any = None  #: the caller's, a mapping or None
    body: bytes | None = None  #: of the request
    private = False  #: whether hosts need not be public
    https_only = False  #: whether plain http goes to this machine alone
    compressed = False  #: whether to ask for compression, and undo it
    max_bytes = FETCH_BODY_BYTES  #: of the body of the answer
    timeout: float = FETCH_HEADERS_SECONDS  #: up to the headers
    body_timeout: float = FETCH_BODY_SECONDS  #: for the body; may be infinite
    max_redirects = FETCH_REDIRECTS  #: followed; 0: handed back
    proxy: str | None = None  #: "environment" or None
    ssl_context: Any = None  #: an ssl.SSLContext, or None
    cancel: Cancel | None = None  #: the caller's signal
    received = 0  #: bytes of a download so far, kept or not
    via = ""  #: the proxy of this hop, host and port
    doing = ""  #: what the deadline would interrupt
    sock: Any = None  #: the socket of this hop

    def __init__(self, url: str, env: Env, **options: Any) -> None:
        """Read the URL; options: of the attributes above. Raises: FORBIDDEN."""
        self.__dict__.update(options)
        self.url = self.first = _fetch_read_url(url)  #: of the current hop, and of the first
        self.env = env  #: clock and environment
        self.fields: list[tuple[str, str]] = []  #: header lines that are still sent
        self.buffer = bytearray()  #: received on this hop and not yet used

    def start(self, seconds: float, name: str) -> None:
        """Begin a phase with its own deadline."""
        self.deadline = self.env.clock() + seconds  #: of this phase
        self.limit = f"{seconds:g} seconds ({name})"  #: for the message when they have passed

    def fault(self, code: str, why: str, network: bool = False) -> Error:
        """Return a refusal of the current hop; network: a failure that a proxy might explain or mend."""
        hop = "" if self.url is self.first else f" (redirected from {_fetch_shown(self.first)})"
        note = ""
        if self.via:
            note = f" (through the proxy {self.via}, so addresses were not checked)"
        elif network and self.proxy is None:
            name = _fetch_proxy_setting(self.env.environ, self.url[0])[0]
            note = f'; {name} is set, but a proxy is used only with proxy="environment"' if name else ""
        return Error(code, f"cannot fetch {_fetch_shown(self.url)}{hop}: {why}{note}")

    def failure(self, why: str, network: bool = False) -> Error:
        """Return the CONNECTION_REQUEST_FAILED of the current hop."""
        return self.fault("CONNECTION_REQUEST_FAILED", why, network)

    def too_large(self, what: str, limit: int) -> Error:
        """Return the refusal of an answer over one of its limits."""
        return self.fault("CONNECTION_RESPONSE_TOO_LARGE", f"{what} has more than {limit:,} bytes")

    def left(self) -> float:
        """Return the seconds of this phase that are left, never none. Raises: CONNECTION_TIMEOUT, REQUEST_ABORTED."""
        if self.cancel is not None:
            self.cancel.check()
        seconds = self.deadline - self.env.clock()
        if seconds <= 0:
            raise self.fault("CONNECTION_TIMEOUT", f"{self.limit} passed while {self.doing}", True)
        return seconds

    # -- the connection of this hop, plain or TLS: every wait ends at the deadline -------------------------------------

    def attempt(self, step: Callable[[], Any]) -> Any:
        """Return what a step on the socket returns. Raises: CONNECTION_*, REQUEST_ABORTED."""
        from socket import timeout

        while True:
            # Short waits, so that a cancelled call ends soon and a clock of a test is looked at.
            try:
                self.sock.settimeout(min(self.left(), FETCH_SLICE_SECONDS))
                return step()
            except timeout:
                continue
            except (OSError, ValueError) as error:
                raise self.failure(_fetch_reason(error), True) from error

    def secure(self, host: str) -> None:
        """Speak TLS from here on, with whoever proves to be this host."""
        self.doing = "agreeing on TLS"
        context = self.ssl_context
        if context is None:
            import ssl

            context = ssl.create_default_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_2  # Python 3.9 would take less, and a cut for an end
            context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0x80)
        self.sock = self.attempt(
            lambda: context.wrap_socket(
                self.sock, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False
            )
        )
        self.attempt(self.sock.do_handshake)

    def send(self, data: bytes) -> None:
        """Send all of it, unless the other side hangs up: its answer may be there already."""
        self.doing = "sending the request"
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.attempt(lambda: self.sock.send(rest[:FETCH_CHUNK_BYTES])) :]
        except Error as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise

    def more(self, last: bool = False) -> bool:
        """Wait for bytes and keep them; False at the end of the connection, which must not come unless last."""
        data = self.attempt(lambda: self.sock.recv(FETCH_CHUNK_BYTES))
        if not data and not last:
            raise self.failure("the connection ended before the answer was complete", True)
        self.buffer += data
        return bool(data)

    def line(self, limit: int) -> bytes:
        """Return the next line without its end. Raises: CONNECTION_RESPONSE_TOO_LARGE above limit bytes."""
        end, size = -1, 0
        while end < 0 and size <= limit and (size < len(self.buffer) or self.more()):
            end, size = self.buffer.find(b"\n", size), len(self.buffer)
        if not 0 <= end <= limit:
            raise self.too_large("the header", limit)
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return line[:-1] if line.endswith(b"\r") else line

    def some(self, most: int, last: bool = False) -> bytes:
        """Return the next bytes, at most so many; none at the end of the connection (see more)."""
        if self.buffer or self.more(last):
            piece = bytes(self.buffer[:most])
            del self.buffer[:most]
            return piece
        return b""


class _FetchResponse:
    """The answer to a fetch."""

    def __init__(self, request: _FetchRequest, status: int, reason: str, headers: Any) -> None:
        self.status = status  #: 200 to 999
        self.reason = reason  #: the server's word for it
        self.headers = headers  #: names in lower case
        self.url = _fetch_origin(request.url) + request.url[4]  #: of the hop that answered
        self.body = b""  #: all of it, when fetch() has returned
        self._request = request  #: limits, words for refusals, and the connection that chunks() reads

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives, decompressed if that was asked for; once. Raises: CONNECTION_*."""
        request = self._request
        try:
            pieces = _fetch_limited(request, _fetch_frames(request, self.status, self.headers))
            coding = self.headers.get("content-encoding", "").strip().lower()
            if request.compressed and coding not in ("", "identity"):
                pieces = _fetch_limited(request, _fetch_inflate(request, pieces, coding))
            yield from pieces
        finally:
            self.close()

    def close(self) -> None:
        """Hang up; twice is harmless."""
        self._request.sock.close()


def _fetch_check_options(request: _FetchRequest) -> None:
    """Refuse options that cannot be used; no header can break out of its line. Raises: BAD_REQUEST, FORBIDDEN."""
    for name in ("max_bytes", "max_redirects", "timeout", "body_timeout"):
        number = getattr(request, name)
        kinds = (int, float) if "timeout" in name else (int,)
        huge = float in kinds and isinstance(number, int) and number.bit_length() > FETCH_SECONDS_BITS
        if not isinstance(number, kinds) or isinstance(number, bool) or huge or not number >= 0:
            raise Error("BAD_REQUEST", f"{name} must be a number from 0 on, not {_json_show(number)}")
    for choice in (request.private, request.https_only, request.compressed):
        if not isinstance(choice, bool):  # the text "false" must lower no guard
            raise Error("BAD_REQUEST", f"a switch of fetch must be True or False, not {_json_show(choice)}")
    if request.proxy not in (None, "environment"):
        raise Error("BAD_REQUEST", 'proxy must be None or "environment"; put its address into HTTPS_PROXY')
    if request.body is not None and not isinstance(request.body, bytes):
        raise Error("BAD_REQUEST", f"the body must be bytes, not {type(request.body).__name__}; encode it first")
    method = request.method
    if not isinstance(method, str) or not _format_is_made_of(method, FORMAT_LETTERS) or method.upper() == "CONNECT":
        raise Error("BAD_REQUEST", f"{_json_show(method)} is no method to fetch with; give GET, POST or another word")
    request.method = method.upper()
    if not isinstance(request.headers, (dict, type(None))):
        raise Error("BAD_REQUEST", f"headers must be a dict of names and values, not {type(request.headers).__name__}")
    request.fields = list((request.headers or {}).items())
    for name, value in request.fields:
        if not isinstance(name, str) or not _format_is_made_of(name, FETCH_TOKEN):
            raise Error("BAD_REQUEST", f"{_json_show(name)} is no name of a header; use letters, digits and hyphens")
        if name.lower() in FETCH_OWN_HEADERS:
            raise Error("BAD_REQUEST", f"the header {name} is set by fetch itself; leave it out")
        if not isinstance(value, str) or not all(" " <= mark <= "~" or mark == "\t" for mark in value):
            raise Error("BAD_REQUEST", f"the value of the header {name} must be printable ASCII on one line")
    context = request.ssl_context
    strict = getattr(context, "check_hostname", False) and context.verify_mode == 2  # ssl.CERT_REQUIRED
    if context is not None and not strict:
        why = "does not verify certificates and host names; load your own authority with load_verify_locations"
        raise Error("FORBIDDEN", f"the ssl_context {why}")


def _fetch_reason(error: Exception) -> str:
    """Return what went wrong below us, in a few words."""
    untrusted = getattr(error, "verify_message", "")
    if untrusted:
        return f"its certificate is not valid here ({_env_human(untrusted, limit=FETCH_REASON_CHARACTERS)})"
    words = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    return _env_human(str(words), limit=FETCH_REASON_CHARACTERS)


def _fetch_show(text: object) -> str:
    """Return a URL that could not be read, in quotes, without whatever may be a secret in it. Pure."""
    if not isinstance(text, str):
        return type(text).__name__
    if "@" in text:  # where a password ends is anyone's guess
        scheme = text.partition(":")[0].lower()
        text = f"{scheme}://***" if scheme in FETCH_PORTS else "***"
    return _json_show(text.partition("?")[0].partition("#")[0], FETCH_SHOWN_CHARACTERS)


def _fetch_read_url(text: str) -> tuple[str, str, bool, int, str]:
    """Take a URL apart, strictly. Pure. Raises: FORBIDDEN.

    >>> _fetch_read_url("HTTPS://Example.com.:443?q=\u20ac#top")
    ('https', 'example.com', False, 443, '/?q=%E2%82%AC')
    """
    import re

    try:
        if not isinstance(text, str) or len(text) > FETCH_URL_CHARACTERS:
            raise ValueError(f"a URL must be text of at most {FETCH_URL_CHARACTERS:,} characters")
        if not text.isprintable() or " " in text or "\\" in text:
            raise ValueError("it holds a blank, a control character or a backslash; percent-encode it")
        scheme, authority, target = re.findall("(?:([A-Za-z]+)://)?([^/?#]*)([^#]*)", text)[0]
        scheme = scheme.lower()
        if scheme not in FETCH_PORTS:
            raise ValueError("only URLs that begin with http:// or https:// are fetched")
        if "@" in authority:
            raise ValueError("a user name or password in a URL is refused; send it in a header")
        host, colon, port = authority.rpartition(":")
        if not colon or "]" in port:
            host, port = authority, str(FETCH_PORTS[scheme])
        if not (_format_is_made_of(port, FORMAT_DIGITS) and len(port) <= 5 and 0 < int(port) < 0x10000):
            raise ValueError("its port must be a number from 1 to 65535")
        host, literal = _fetch_read_host(host)
    except ValueError as error:
        raise Error("FORBIDDEN", f"cannot fetch {_fetch_show(text)}: {error}") from None
    target = target if target.startswith("/") else "/" + target
    if not FETCH_PATH.issuperset(target):
        from urllib.parse import quote

        target = quote(target, safe="".join(FETCH_PATH))
    return scheme, host, literal, int(port), target


def _fetch_read_host(text: str) -> tuple[str, bool]:
    """Return a host in ASCII and whether it is an address. Pure. Raises: ValueError with one sentence.

    >>> _fetch_read_host("B\xfccher.example."), _fetch_read_host("[::FFFF:7F00:1]")
    (('xn--bcher-kva.example', False), ('::ffff:7f00:1', True))
    """
    if text.startswith("["):
        inner = text[1:-1].lower()
        if "%" in inner:
            raise ValueError("an address with a zone (%) is refused; it leads to another machine for everyone")
        if not text.endswith("]") or not _format_is_ipv6(inner):
            raise ValueError("what stands in brackets is no IPv6 address")
        return inner, True
    host = text.lower()
    if not host.isascii():
        from unicodedata import normalize

        host = normalize("NFKC", normalize("NFKC", text).lower()).replace("\u3002", ".")
    host = host[:-1] if host.endswith(".") else host
    ascii_host = host if host.isascii() else _format_host_ascii(host)
    if ascii_host is None:
        raise ValueError("the host is no name of IDNA 2008; give its ASCII form (xn--...)")
    host = ascii_host
    labels = host.split(".")
    last = labels[-1]
    if _format_is_made_of(last, FORMAT_DIGITS) or (last[:2] == "0x" and FORMAT_HEX.issuperset(last[2:])):
        # Resolvers read 127.1, 0x7f.1, 0177.0.0.1 and 2130706433 as addresses; a name never ends like that.
        if host != text or not _format_is_ipv4(host):
            raise ValueError("it spells an address in an odd way; write four decimal numbers from 0 to 255")
        return host, True
    if not host:
        raise ValueError("the host is missing")
    if len(host) > FORMAT_HOST_CHARACTERS or not all(map(_fetch_is_label, labels)):
        raise ValueError("the host is no name that could be looked up")
    return host, False


def _fetch_is_label(label: str) -> bool:
    """Tell whether one part of a name can be looked up, and is no disguise of another one. Pure."""
    if not _format_is_made_of(label, FETCH_NAME) or len(label) > FORMAT_LABEL_CHARACTERS or label.startswith("-"):
        return False
    if not label.startswith("xn--"):
        return True
    from unicodedata import normalize

    return not normalize("NFKC", _format_read_punycode(label).lower()).isascii()


def _fetch_private(text: str) -> str | None:
    """Return why an address is not public, None when it is. Pure.

    >>> _fetch_private("8.8.8.8"), _fetch_private("::ffff:10.0.0.1"), _fetch_private("fe80::1%eth0")
    (None, 'a private network', 'no plain address')
    """
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address("" if "%" in text else text)
    except ValueError:
        return "no plain address"  # with a zone, above all
    if any(address in ip_network(network) for network in FETCH_CARRIERS):
        address = ip_address(int(address) & 0xFFFFFFFF)
    return next((why for network, why in FETCH_BLOCKS if address in ip_network(network)), None)


def _fetch_addresses(request: _FetchRequest) -> list[str]:
    """Return the addresses of the current hop, judged; none where a proxy looks up. Raises: FORBIDDEN, CONNECTION_*."""
    scheme, host, literal, port, _ = request.url
    permit = f"{request.switch} permits it, if you trust the URL"
    if not literal and not request.private and host.split(".")[-1] in FETCH_LOCAL_NAMES:
        raise request.fault("FORBIDDEN", f"{host} is a name inside your own network; {permit}")
    addresses = [host] if literal else [] if request.via else _fetch_find(request, host, port)
    reasons = [_fetch_private(address) for address in addresses]
    for address, reason in zip(addresses, reasons):
        if reason is not None and not request.private:
            where = _env_human(address) if literal else f"{host} has the address {_env_human(address)}"
            raise request.fault("FORBIDDEN", f"{where}, which is not public ({reason}); {permit}")
    if request.https_only and scheme == "http" and set(reasons) != {FETCH_LOOPBACK}:
        raise request.fault("FORBIDDEN", "only https is fetched here, and plain http from this machine; use https")
    return addresses


def _fetch_lookup(host: str, port: int) -> list[str]:
    """Return the addresses that the system has for a name, each once, best first. Uses the network. Raises: OSError."""
    import socket

    # As bytes: given text, Python would apply an older IDNA of its own.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _fetch_find(request: _FetchRequest, host: str, port: int) -> list[str]:
    """Look a name up once, within the deadline. Raises: CONNECTION_*, REQUEST_ABORTED."""
    request.doing = "looking up the host"
    found = _fetch_beside(request, lambda: _fetch_lookup(host, port))
    if isinstance(found, Exception):
        raise request.failure(f"{host} cannot be looked up ({_fetch_reason(found)})", True) from found
    if not found:
        raise request.failure(f"{host} has no address", True)
    return list(found)


def _fetch_beside(request: _FetchRequest, work: Callable[[], Any]) -> Any:
    """Return what work returns or raises; its thread is left behind at the deadline or a cancel. Raises: as left."""
    from threading import Thread

    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # for the thread that asks
            found.append(error)

    thread = Thread(target=run, daemon=True)  # what hangs ends with the process
    thread.start()
    while thread.is_alive():
        thread.join(min(request.left(), FETCH_SLICE_SECONDS))
    return found[0]


def _fetch_dial(address: str, port: int, seconds: float) -> Any:
    """Return a socket connected to an address, which is not looked up again. Uses the network. Raises: OSError."""
    from socket import create_connection

    host: Any = address.encode("ascii")
    return create_connection((host, port), seconds)


def _fetch_connect(request: _FetchRequest, addresses: Sequence[str], port: int) -> None:
    """Connect to the first address that answers; each gets its share of the time left. Raises: CONNECTION_*."""
    request.doing = "connecting"
    tried = addresses[:FETCH_ADDRESSES]
    for index, address in enumerate(tried):
        seconds = min(request.left() / (len(tried) - index), FETCH_BODY_SECONDS)  # no system waits longer
        fault = _fetch_beside(request, lambda: _fetch_dial(address, port, seconds))
        if not isinstance(fault, Exception):
            request.sock, request.buffer = fault, bytearray()
            return
        if not isinstance(fault, (OSError, ValueError)):
            raise fault
    request.left()  # where all the time is gone, that is the reason
    why = f"no connection to {_env_human(tried[-1])} port {port} ({_fetch_reason(fault)})"
    raise request.failure(why, True) from fault


def _fetch_proxy_setting(environ: Mapping[str, str], scheme: str) -> tuple[str, str]:
    """Return name and value of the environment variable that sets a proxy for a scheme, empty ones for none. Pure."""
    for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        # Under CGI, HTTP_PROXY holds the header "Proxy" of whoever called.
        if environ.get(name) and not (name == "HTTP_PROXY" and "REQUEST_METHOD" in environ):
            return name, environ[name]
    return "", ""


def _fetch_skips_proxy(environ: Mapping[str, str], url: tuple[Any, ...]) -> bool:
    """Tell whether NO_PROXY names the host: itself, a domain above it, with or without its port, or ``*``. Pure."""
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return any(
        f".{host}".endswith("." * bool(entry) + entry)
        for entry in (entry.lstrip("*").lstrip(".") for entry in listed.replace(",", " ").lower().split())
        for host in (url[1], _fetch_authority(url), f"{url[1]}:{url[3]}")
    )


def _fetch_choose_proxy(request: _FetchRequest) -> tuple[tuple[Any, ...], str]:
    """Return the proxy of the current hop and its header line, else the URL itself and none. Raises: BAD_REQUEST."""
    request.via = ""
    environ = request.env.environ
    name, value = _fetch_proxy_setting(environ, request.url[0])
    if request.proxy is None or not name or _fetch_skips_proxy(environ, request.url):
        return request.url, ""
    scheme, _, rest = value.rpartition("://")
    user, at, authority = rest.partition("/")[0].rpartition("@")
    try:
        if scheme.lower() not in ("", "http"):
            raise Error("FORBIDDEN", "")
        proxy = _fetch_read_url(f"http://{authority}")
    except Error:
        why = f"the proxy in {name} must be http://host:port"  # the text may hold a password
        raise request.fault("BAD_REQUEST", why) from None
    request.via = _fetch_authority(proxy)
    if not at:
        return proxy, ""
    from binascii import b2a_base64
    from urllib.parse import unquote_to_bytes

    credentials = b2a_base64(unquote_to_bytes(os.fsencode(user)), newline=False).decode("ascii")
    return proxy, f"Proxy-Authorization: Basic {credentials}\r\n"


def _fetch_open(request: _FetchRequest) -> _FetchResponse:
    """Return the final answer, its body unread: the caller reads chunks() or closes it. Raises: what fetch raises."""
    _fetch_check_options(request)
    request.start(request.timeout, "timeout")
    followed = 0
    while True:
        response = _fetch_hop(request)
        location = response.headers.get("location")
        if response.status not in FETCH_REDIRECT_STATUSES or location is None or not request.max_redirects:
            request.start(request.body_timeout, "body_timeout")
            request.doing = "reading the body"
            return response
        response.close()
        if followed == request.max_redirects:
            raise request.failure(f"more than {followed} redirects (max_redirects); give the final URL")
        followed += 1
        _fetch_follow(request, response.status, location)


def _fetch_hop(request: _FetchRequest) -> _FetchResponse:
    """Judge the current hop, make it, and return its answer up to the headers."""
    scheme, host, _, port, _ = request.url
    (_, next_host, literal, next_port, _), line = _fetch_choose_proxy(request)
    addresses = _fetch_addresses(request)
    if request.via:
        addresses = [next_host] if literal else _fetch_find(request, next_host, next_port)
    _fetch_connect(request, addresses, next_port)
    try:
        if request.via and scheme == "https":
            where = _fetch_authority(request.url) + (f":{port}" if port == FETCH_PORTS[scheme] else "")
            request.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{line}\r\n".encode("ascii"))
            line = ""
            status = _fetch_read_head(request)[0]
            if status // 100 != 2 or request.buffer:
                raise request.failure(f"the proxy answered {status}")
        if scheme == "https":
            request.secure(host)
        request.send(_fetch_head(request, line) + (request.body or b""))
        request.doing = "waiting for the answer"
        return _FetchResponse(request, *_fetch_read_head(request))
    except BaseException:
        request.sock.close()
        raise


def _fetch_head(request: _FetchRequest, line: str) -> bytes:
    """Return request line and headers; line: one more, for a proxy. Pure."""
    given = [name.title() for name, _ in request.fields]
    host, agent = _fetch_authority(request.url), "Python/%d.%d" % sys.version_info[:2]
    own = [("Host", host), ("User-Agent", agent), ("Accept", "*/*")]
    fields = [pair for pair in own if pair[0] not in given] + request.fields
    fields.append(("Accept-Encoding", "gzip, deflate" if request.compressed else "identity"))
    if request.body is not None or request.method in FETCH_BODY_METHODS:
        fields.append(("Content-Length", str(len(request.body or b""))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    target = request.url[4]
    if request.via and request.url[0] == "http":
        target = _fetch_origin(request.url) + target  # as a proxy wants it
    return f"{request.method} {target} HTTP/1.1\r\n{lines}{line}Connection: close\r\n\r\n".encode("ascii")


def _fetch_read_head(request: _FetchRequest) -> tuple[int, str, dict[str, str]]:
    """Return status, reason and headers of the next final answer. Raises: CONNECTION_*, REQUEST_ABORTED."""
    room = FETCH_HEADER_BYTES
    for _ in range(FETCH_INTERIM_ANSWERS):
        line = request.line(room)
        version, _, rest = line.partition(b" ")
        code, _, reason = rest.partition(b" ")
        known = len(code) == 3 and code.isdigit() and b"100" <= code != b"101"  # after 101 no HTTP follows
        if version not in (b"HTTP/1.1", b"HTTP/1.0") or not known:
            raise request.failure("the answer is no HTTP/1.1")
        headers, room = _fetch_read_headers(request, room - len(line))
        if code[:1] != b"1":
            return int(code), _env_human(reason.decode("latin-1"), limit=FETCH_REASON_CHARACTERS), headers
    raise request.failure(f"more than {FETCH_INTERIM_ANSWERS} interim answers")


def _fetch_read_headers(request: _FetchRequest, room: int) -> tuple[dict[str, str], int]:
    """Return the header lines up to the empty one, and how much room is left for more. Raises: CONNECTION_*."""
    headers: dict[str, str] = {}
    last = ""
    for _ in range(FETCH_HEADER_LINES):
        line = request.line(room)
        room -= len(line)
        if not line:
            return headers, room
        text = line.decode("latin-1")
        name, colon, value = text.partition(":")
        value = value.strip(" \t")
        if text[0] in " \t" and last:  # RFC 9112 5.2: an old way to go on with a value
            headers[last] += " " + text.strip(" \t")
        elif colon and _format_is_made_of(name, FETCH_TOKEN) and "\0" not in value and "\r" not in value:
            last = name.lower()
            known = headers.get(last)
            same = known is None or (last == "content-length" and known == value)
            headers[last] = value if same else f"{known}, {value}"
        else:
            raise request.failure("the answer has a header line that is none")
    raise request.failure(f"the answer has more than {FETCH_HEADER_LINES} header lines")


def _fetch_frames(request: _FetchRequest, status: int, headers: Any) -> Iterator[bytes]:
    """Yield the body as it was sent, without its framing (RFC 9112 6.3). Raises: CONNECTION_*, REQUEST_ABORTED."""
    coding = headers.get("transfer-encoding", "").lower()
    length = headers.get("content-length")
    if request.method == "HEAD" or status in FETCH_BODYLESS_STATUSES:
        return
    if coding not in ("", "chunked"):
        raise request.failure("its transfer encoding is not chunked")
    if not coding and length is None:
        yield from iter(lambda: request.some(FETCH_CHUNK_BYTES, last=True), b"")
        return
    if not coding and length.isdecimal() and int(length[:FETCH_FRAME_DIGITS]) > request.max_bytes:
        raise request.too_large("the body (max_bytes)", request.max_bytes)
    while True:  # once, or once for every chunk (RFC 9112 7.1)
        size = request.line(FETCH_FRAME_BYTES).partition(b";")[0].strip(b" \t").decode("latin-1") if coding else length
        if not _format_is_made_of(size, FORMAT_HEX if coding else FORMAT_DIGITS) or len(size) > FETCH_FRAME_DIGITS:
            raise request.failure("the answer has a length that is no number")
        left = total = int(size, 16 if coding else 10)
        while left:
            piece = request.some(min(left, FETCH_CHUNK_BYTES))
            left -= len(piece)
            yield piece
        if coding and not total:
            _fetch_read_headers(request, FETCH_HEADER_BYTES)
        if not coding or not total:
            return
        if request.line(FETCH_FRAME_BYTES):
            raise request.failure("a chunk of the answer has not the length it claims")


def _fetch_limited(request: _FetchRequest, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces as long as they are within max_bytes together. Raises: CONNECTION_RESPONSE_TOO_LARGE."""
    room = request.max_bytes
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise request.too_large("the body (max_bytes)", request.max_bytes)
        yield piece


def _fetch_inflate(request: _FetchRequest, pieces: Iterator[bytes], coding: str) -> Iterator[bytes]:
    """Yield decompressed pieces, never more than FETCH_CHUNK_BYTES at once. Raises: CONNECTION_*, REQUEST_ABORTED."""
    import zlib

    if coding not in ("gzip", "x-gzip", "deflate"):
        raise request.failure(f"its compression {_json_show(coding)} was not asked for")
    decoder: Any = None
    try:
        for piece in pieces:
            full = False
            while piece or full:
                if decoder is None:
                    # "deflate" is zlib by the standard and bare by habit; a zlib header's first half byte tells.
                    bare = coding == "deflate" and piece[0] & 0x0F != 8
                    decoder = zlib.decompressobj(-15 if bare else 15 if coding == "deflate" else 31)
                data = decoder.decompress(piece, FETCH_CHUNK_BYTES)
                yield data
                full = len(data) == FETCH_CHUNK_BYTES and not decoder.eof
                piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                decoder = None if decoder.eof else decoder
    except zlib.error:
        raise request.failure("its compressed bytes are damaged") from None
    if decoder is not None:
        raise request.failure("its compressed bytes end too early")


def _fetch_follow(request: _FetchRequest, status: int, location: str) -> None:
    """Point the request at where a redirect leads; the next hop judges it. Raises: FORBIDDEN, BAD_REQUEST."""
    from urllib.parse import urljoin

    old = _fetch_origin(request.url)
    try:
        # Checked before it is joined, since urljoin drops tabs and line ends; judged after.
        text = location.encode("latin-1").decode("utf-8", "surrogateescape")
        new = _fetch_read_url(urljoin(old + request.url[4], text) if text.isprintable() else text)
    except ValueError:
        raise request.failure("it redirects to what is no URL") from None
    except Error as error:
        raise Error(error.code, f"{error.message} (redirected from {_fetch_shown(request.url)})") from None
    if status not in FETCH_KEEPING_STATUSES and request.method not in ("GET", "HEAD"):
        request.method, request.body = "GET", None
        request.fields = [pair for pair in request.fields if not pair[0].lower().startswith("content-")]
    if _fetch_origin(new) != old:
        where = f"it redirects to {_fetch_shown(new)}, and"
        if (request.url[0], new[0]) == ("https", "http"):
            raise request.fault("FORBIDDEN", f"{where} https never leads to plain http")
        if request.body is not None:
            raise request.fault("FORBIDDEN", f"{where} a body is sent to no other origin")
        request.fields = [pair for pair in request.fields if pair[0].lower() in FETCH_FREE_HEADERS]
    request.url = new


def _fetch_download(items: Iterable[Any], folder: str, *, env: Env, private_hosts: bool = False, quiet: bool = False,
                    proxy: str | None = None, ssl_context: Any = None, cancel: Cancel | None = None) -> list[Error]:
    """Save each ``{"url", "name"}`` as a file in a folder, made if missing; return the failures, said on stderr too.

    A link at the folder's own path is followed: the user named it. Inside, nothing that exists is written to: a taken
    name gets " (2)". A file appears complete or not at all; one failure leaves the others their turn. A saved file is a
    line on stderr unless quiet. Uses the network, writes files. Raises: REQUEST_ABORTED, and what items raises.
    """
    failures: list[Error] = []
    numbers: dict[str, int] = {}
    room = FETCH_FILES_BYTES

    def refuse(error: Error) -> None:
        failures.append(error)
        env.write_err(f"not saved: {error.message}\n")

    try:
        place = os.path.realpath(os.path.join(env.cwd, folder))
        os.makedirs(place, exist_ok=True)
    except (OSError, ValueError) as fault:
        refuse(_files_failure("OUTPUT_FAILED", "make the folder", folder, fault, "choose another place"))
        items = ()
    for count, item in enumerate(items):
        full = room <= 0 or count == FETCH_FILES
        try:
            if full:
                limit = f"{FETCH_FILES:,} files" if room > 0 else f"{FETCH_FILES_BYTES:,} bytes"
                raise Error("CONNECTION_RESPONSE_TOO_LARGE", f"one call saves at most {limit}; the rest is left out")
            url, name = (item.get("url"), item.get("name")) if isinstance(item, dict) else (None, None)
            if not isinstance(url, str) or not isinstance(name, str):
                why = 'a download must be {"url": text, "name": text}; mend the download function'
                raise Error("BAD_REQUEST", why)
            request = _FetchRequest(
                url, env, switch="download_private_hosts=True", private=private_hosts, proxy=proxy, cancel=cancel,
                max_bytes=min(room, FETCH_FILE_BYTES), ssl_context=ssl_context,
            )  # fmt: skip
            try:
                saved, size = _fetch_save(request, place, _fetch_file_name(name), numbers)
            finally:
                room -= request.received  # what could not be kept was received all the same
            if not quiet:
                env.write_err(f"saved {_env_human(os.path.join(folder, saved))} ({size:,} bytes)\n")
        except Error as error:
            if error.code == "REQUEST_ABORTED":
                raise
            refuse(error)
        if full:
            break
    return failures


def _fetch_file_name(name: str) -> str:
    r"""Return a name that is one plain file in any folder, on any system. Pure.

    >>> [_fetch_file_name(name) for name in ("../../etc/passwd", ".bashrc", "a\nb?.txt", "con.txt", "..", "-rf")]
    ['passwd', '_bashrc', 'a_b_.txt', '_con.txt', 'download', '_rf']
    """
    from unicodedata import normalize

    text = normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    kept = ""
    for mark in text:
        bad = FETCH_FILE_REFUSED if mark.isascii() else FETCH_FILE_DISGUISED
        kept += mark if mark.isprintable() and bad.isdisjoint(normalize("NFKC", mark)) else "_"
    text = kept.rstrip(". ") or "download"
    if text[0] in FETCH_FILE_FIRST:
        text = "_" + text[1:]
    if _paths_windows_fault(text) is not None:
        text = "_" + text
    stem, ending = os.path.splitext(text)
    if len(ending.encode("utf-8")) > FETCH_NAME_ENDING_BYTES:
        stem, ending = text, ""
    short = stem.encode("utf-8")[: FETCH_NAME_BYTES - len(ending.encode("utf-8"))].decode("utf-8", "ignore")
    return text if short == stem else short.rstrip(". ") + ending


def _fetch_save(request: _FetchRequest, folder: str, name: str, numbers: dict[str, int]) -> tuple[str, int]:
    """Stream one file into the folder; return its name there and its size. Raises: what fetch raises, OUTPUT_FAILED."""
    response = _fetch_open(request)
    stage = os.path.join(folder, FILES_STAGE_PREFIX + request.env.random(8).hex())
    size = 0
    try:
        if response.status != FETCH_WHOLE:
            raise request.failure(f"the server answered {response.status}")
        descriptor = os.open(stage, _files_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW"), 0o666)
        try:
            try:
                for chunk in response.chunks():
                    size += len(chunk)
                    request.received = size
                    while chunk:
                        chunk = chunk[os.write(descriptor, chunk) :]
            finally:
                os.close(descriptor)
            return _fetch_publish(stage, folder, name, numbers), size
        except BaseException as fault:
            if getattr(fault, "code", "") == "CONNECTION_RESPONSE_TOO_LARGE":
                request.received = request.max_bytes  # the rest came, too, and was thrown away
            _files_remove(stage)
            raise
    except (OSError, ValueError) as error:
        raise _files_failure("OUTPUT_FAILED", "save", name, error, "make room or choose another folder") from error
    finally:
        response.close()


def _fetch_publish(stage: str, folder: str, name: str, numbers: dict[str, int]) -> str:
    """Name a finished file, or number its name where that is taken (from where numbers says). Writes file."""
    stem, ending = os.path.splitext(name)
    for number in range(numbers.get(name, 1), FETCH_NAME_NUMBERS):
        free = name if number == 1 else f"{stem} ({number}){ending}"
        try:
            _files_publish(stage, os.path.join(folder, free), True)
        except FileExistsError:
            continue
        numbers[name] = number + 1
        return free
    raise OSError(0, f"{FETCH_NAME_NUMBERS:,} names like it are taken")
# endregion FETCH


# region WAIT -- --wait: ask for an asynchronous result until it is final
# needs: LIMITS ERRORS ENV REG CALL
# A command that starts a job answers before the job is done. A Wait says which command asks for it, and how its end
# is known:
#
#     judge   failed, then done; each once per answer, the command's own answer first
#     poll    at once, then after each pause; the last pause repeats; each is up to 10 % longer or shorter by chance
#     end     done: that answer. failed: WAIT_FAILED. A poll that is refused: its own error. No time left: TIMEOUT
#
# The deadline holds for a poll that hangs, too. Nothing stops a synchronous function from outside, so each poll runs in
# a daemon thread of its own; when the time is up it is told by its ctx.cancel and left behind. Under arun polls are
# tasks of the running loop, which are cancelled; there a synchronous handler blocks the loop, as it does in any call.
# The job itself is never stopped. Every end but done carries the last answer in its details, since that names the job.

WAIT_PARTS = ("tool", "poll", "done", "failed", "backoff", "timeout")  # what makes a Wait
WAIT_WRONG_FLAGS = 0x80 | REG_GENERATOR_FLAGS  # CO_COROUTINE: calling such a function gives no answer


class Wait:
    """How ``--wait`` finds the final result of a command: ``App(wait={"render": nk.Wait("render_status", ...)})``.

    tool: the managed command that asks for the job; not a destructive one, for it is called again and again.
    poll(result): the arguments of tool as a dict, made from the command's own result, or None where there is nothing to
    wait for. done(result), failed(result): whether an answer is final, True or False; failed is asked first. All three
    are plain functions of a result as JSON. backoff: seconds of the pauses between polls; the last one repeats.
    timeout: seconds for all polls together, unless --wait-timeout says otherwise.

    Polls run in threads of their own: what the application's context holds must be usable there
    (``sqlite3.connect(..., check_same_thread=False)``).
    """

    def __init__(
        self,
        tool: str,
        poll: Callable[[Any], dict[str, Any] | None],
        done: Callable[[Any], bool],
        failed: Callable[[Any], bool] | None = None,
        backoff: Sequence[float] = WAIT_BACKOFF_SECONDS,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        self.tool = tool  #: name of the command that is polled
        self.poll, self.done, self.failed = poll, done, failed  #: functions of a result
        self.backoff = backoff  #: seconds between polls
        self.timeout = timeout  #: seconds until the wait gives up


def _wait_check(wait: Any, registry: Registry, command: str, *, whole: bool = True) -> None:
    """Refuse a wait that could only fail once the job has begun. whole: no further commands will come. Cheap.

    Raises: REGISTRATION_ERROR.
    """

    def refuse(why: str) -> None:
        raise RegistrationError(f"the wait of {command}: {why}")

    # Not by its class, since a Wait of another copy of this file is as good as ours.
    if isinstance(wait, type) or not all(hasattr(wait, part) for part in WAIT_PARTS):
        raise RegistrationError(f"the wait of {command} is {_reg_show(wait)}; make it a Wait")
    for word in ("poll", "done", "failed"):
        value = getattr(wait, word)
        flags = getattr(getattr(value, "__code__", None), "co_flags", 0)
        if (value is not None or word != "failed") and not callable(value) or flags & WAIT_WRONG_FLAGS:
            what = "a coroutine or generator function" if callable(value) else _reg_show(value)
            refuse(f"{word} must be a plain function of the result, not {what}")
    pauses = wait.backoff if isinstance(wait.backoff, (list, tuple)) else ()
    if not pauses or not all(map(_wait_is_seconds, pauses)):
        refuse(f"backoff must be a list of positive numbers of seconds, not {wait.backoff!r:.60}")
    if not _wait_is_seconds(wait.timeout):
        refuse(f"timeout must be a positive number of seconds, not {wait.timeout!r:.60}")
    own = registry.get(command)
    if own is not None and own.native:
        refuse("a native command's answer is final; leave the wait out")
    text = isinstance(wait.tool, str)
    tool = registry.get(wait.tool) if text else None
    if tool is None and (whole or not text):
        near = " or ".join(_reg_near(wait.tool, [item.name for item in registry.commands()])) if text else ""
        hint = f"did you mean {near}?" if near else "name the command that asks for the job"
        refuse(f"tool is {_reg_show(wait.tool)}, which is no command; {hint}")
    elif tool is not None and (tool.native or tool.destructive):
        refuse(f"{tool.name} is {'native' if tool.native else 'destructive'}; name a managed command that only looks")


def _wait_is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


async def _wait_poll(
    wait: Wait, first: Outcome, *, engine: Engine, command: Command, tool: Command, timeout: float | None = None,
    cancel: Cancel | None = None, live: bool = False,
) -> Outcome:
    """Return how the job of a call ended: the first outcome itself, that of the last poll, or a failure.

    timeout: seconds in place of the wait's own. live: inside a loop. Refusals, the deadline, the caller's cancel and
    Ctrl-C are Outcomes. Reads clock, sleeps; one line on a terminal's standard error for each poll that is not final.
    """
    if first.error is not None:
        return first
    env, name, last = engine.env, command.name, first
    seconds = min(wait.timeout if timeout is None else timeout, WAIT_LONGEST_SECONDS)
    start = env.clock()

    def left() -> float:
        """Return the seconds that are left. Raises: TIMEOUT, REQUEST_ABORTED."""
        if cancel is not None and cancel.cancelled:
            raise Error("REQUEST_ABORTED", f"the wait for {name} was cancelled by its caller; its job goes on")
        rest = start + seconds - env.clock()
        if rest > 0:
            return rest
        raise Error("TIMEOUT", f"the job of {name} was not done after {seconds:g} seconds of asking {tool.name}",
                    hint=f"the job goes on: ask {tool.name} later, or wait longer with --wait-timeout")

    number, args = 0, None
    try:
        while not _wait_is_final(wait, name, last.data, env):
            if number:
                if not engine.options.quiet and env.is_terminal("stderr"):
                    env.write_err(f"{tool.name}: not done at poll {number}, after {env.clock() - start:.0f} s\n")
                await _wait_pause(wait, number, env, left, live)
            else:
                args = _wait_ask(wait, "poll", name, first.data, env)
            if args is None:
                break
            number += 1
            signal = Cancel()
            call = Call(tool, args, cancel=signal, deadline=start + seconds)
            steps = engine.perform(call, Approval("none"), live=live)
            try:
                ended = await _wait_in_loop(steps, left) if live else _wait_in_thread(steps, left)
            except BaseException:
                signal.cancel()
                raise
            if ended.error is not None:
                return _wait_failure(engine, ended.error, last)
            last = ended
        return last
    except KeyboardInterrupt:
        gone = Error("REQUEST_ABORTED", f"the wait for {name} was interrupted; its job goes on")
        return _wait_failure(engine, gone, last)
    except Error as fault:
        return _wait_failure(engine, fault, last)


def _wait_failure(engine: Engine, error: Error, last: Outcome) -> Outcome:
    """Return the outcome of a wait that came to no result; the last answer is among its details. Pure."""
    details = error.details if isinstance(error.details, dict) else {} if error.details is None else None
    if details is not None and "result" not in details:
        error = Error(error.code, error.message, details=dict(details, result=last.data), hint=error.hint,
                      retryable=error.retryable, relayed=error.relayed)
    return Outcome(False, error=error, exit_code=engine.exit_code(error.code), entered=True)


def _wait_is_final(wait: Wait, name: str, data: Any, env: Env) -> bool:
    """Tell whether an answer is the end of a job. Raises: WAIT_FAILED, INTERNAL_SERVER_ERROR."""
    if wait.failed is not None and _wait_ask(wait, "failed", name, data, env):
        message = f"the job of {name} failed; details.result is its last answer"
        raise Error("WAIT_FAILED", message, details={"message": message, "result": data})
    return bool(_wait_ask(wait, "done", name, data, env))


def _wait_ask(wait: Wait, word: str, name: str, data: Any, env: Env) -> Any:
    """Return what one function of a wait says of an answer. Raises: INTERNAL_SERVER_ERROR, which names it."""
    try:
        answer = getattr(wait, word)(data)
    except (Exception, SystemExit) as fault:
        _call_trace(env, fault)
        raise Error("INTERNAL_SERVER_ERROR", f"{word} of the wait for {name} failed unexpectedly",
                    hint="set KNAIF_TRACE=1 to see the traceback") from None
    if isinstance(answer, bool) if word != "poll" else answer is None or isinstance(answer, dict):
        return answer
    if hasattr(answer, "close"):
        answer.close()  # a coroutine that nobody will await
    wanted = f"the arguments of {wait.tool} as a dict, or None" if word == "poll" else "True or False"
    raise Error("INTERNAL_SERVER_ERROR", f"{word} of the wait for {name} returned {_reg_show(answer)}, not {wanted}")


async def _wait_in_loop(steps: Any, left: Callable[[], float]) -> Outcome:
    """Return what a coroutine returns, run as a task of this loop. Raises: what left raises."""
    import asyncio

    task = asyncio.ensure_future(steps)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=min(left(), WAIT_SLICE_SECONDS))
        outcome: Outcome = task.result()
        return outcome
    finally:
        task.cancel()


def _wait_in_thread(steps: Any, left: Callable[[], float]) -> Outcome:
    """Return what a coroutine that never waits returns, run in a thread that may be left behind. Raises: as left."""
    from contextvars import copy_context
    from threading import Thread

    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(_call_drive(steps))
        except BaseException as fault:  # for the thread that waits, which raises it
            ended.append(fault)

    thread = Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    while not ended:
        thread.join(min(left(), WAIT_SLICE_SECONDS))
    outcome: Outcome | BaseException = ended[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def _wait_pause(wait: Wait, number: int, env: Env, left: Callable[[], float], live: bool) -> None:
    """Sleep after the poll of this number, at most to the deadline. Raises: what left raises."""
    chance = env.random(1)[0] / 255 * 2 - 1
    pause = wait.backoff[min(number, len(wait.backoff)) - 1] * (1 + WAIT_JITTER * chance)
    until = env.clock() + pause
    while pause > 0:
        pause = min(left(), pause, WAIT_SLICE_SECONDS)
        if live:
            import asyncio

            await asyncio.sleep(pause)
        else:
            env.sleep(pause)
        pause = until - env.clock()
    left()
# endregion WAIT


# region STREAM -- Invoker, line protocol
# needs: LIMITS ERRORS JSON ENV TYPES REG CALL
# One process, many calls. A line is a JSON object, and so is its answer:
#
#     {"id", "command", "args"?, "confirmed"?}
#     {"id", "ok", "exitCode", "data" | "error", "written"?, "replayed"?}      and "line" where the line is at fault
#
# Lines end with 0x0A. A carriage return before it is white space, a byte order mark may begin the first line, blank
# lines are skipped, but counted. A line is answered, and its answer delivered, before the next is read; one that is no
# call is answered with its number, and the loop goes on. Args are JSON values: no text is read as a number.
# Memory holds one line and one answer, however long and however many the lines are.

STREAM_KEYS = frozenset(("id", "command", "args", "confirmed"))
STREAM_MARK = b"\xef\xbb\xbf"  # a byte order mark
STREAM_ID_LIMIT = 10**STREAM_ID_CHARACTERS  # the first integer of too many digits
STREAM_BLANKS = b" \t\r"  # what a blank line may hold
STREAM_FILE_HELP = "the lines: a file, or - for standard input"
STREAM_ALLOW_HELP = "a destructive command that lines may confirm; may be repeated"


class Invoker:
    """Calls commands in process, each through the whole pipeline of the command line; ``app.invoker()`` makes one.

    What the shell would print is returned, with the exit code it would see. Coroutine handlers run in one event loop
    that is kept until close(); inside a running loop await ainvoke. Identity, context and profile are found once, by
    the first call that needs them. Native commands see every framework option off but quiet.
    """

    def __init__(
        self, engine: Engine, find_more: Callable[[Any], Any] | None = None,
        check: Callable[[Outcome], None] | None = None,
    ) -> None:
        from threading import Lock

        self._engine = engine
        self._find_more = find_more  # async function of live: the Registry with what the identity makes known
        self._missing: Error | None = None  # why that failed
        self._check = check  # sees what each call but ainvoke's came to before anyone else does
        self._loop: Any = None  # the kept event loop, once a coroutine handler was called
        self._lock = Lock()  # threads take turns with it
        self._gate: Any = None  # and tasks with find_more
        self._no_approval, self._full_approval = Approval("none"), Approval("all")
        for command in engine.registry.commands("cli"):
            _ = command.input  # makes its schemas, or raises RegistrationError

    @property
    def commands(self) -> list[Command]:
        """What can be called: native commands with a result, then the managed ones that are exposed on cli.

        Raises: what resolve_auth, or a function that makes commands, refused with.
        """
        _call_drive(self._look_up(self._live))
        if self._missing is not None:
            raise self._missing.with_traceback(None)
        found = self._engine.registry.commands("cli")
        natives = [command for command in found if command.native and not command.prints]
        return natives + [command for command in found if not command.native]

    def invoke(
        self, command: str, args: dict[str, Any] | None = None, *, confirmed: bool = False, dry_run: bool = False,
        id: str | int | None = None, cancel: Cancel | None = None,
    ) -> Outcome:
        """Call a command by its exact name and return how that ended; refusals and failures are outcomes too.

        args: a JSON object; nothing in it is read as something else. confirmed: True approves a destructive command.
        dry_run: True checks the call and shows it; only a command that previews is called then. id: ctx.call_id.
        cancel: the signal to stop. KeyboardInterrupt and the like go on to the caller.
        """
        return self._drive(self._invoke(command, args, confirmed, dry_run, id, cancel, self._live))

    async def ainvoke(
        self, command: str, args: dict[str, Any] | None = None, *, confirmed: bool = False, dry_run: bool = False,
        id: str | int | None = None, cancel: Cancel | None = None,
    ) -> Outcome:
        """The same as invoke inside a running event loop: coroutine handlers are awaited in it."""
        return await self._invoke(command, args, confirmed, dry_run, id, cancel, True)

    def close(self) -> None:
        """End the kept event loop; tasks that a handler left in it are cancelled."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        import asyncio

        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def __enter__(self) -> Invoker:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    async def _invoke(
        self, name: Any, args: Any, confirmed: Any, dry_run: Any, id: Any, cancel: Cancel | None, live: Any
    ) -> Outcome:
        """Do what invoke does, once what it was given is of the right kinds."""
        args = {} if args is None else args
        if isinstance(name, str) and isinstance(args, dict) and type(confirmed) is type(dry_run) is bool:
            approval = self._full_approval if confirmed else self._no_approval
            return await self._perform(name, args, approval, dry_run, id, cancel, live)
        kinds = (("the command", name, str, "text"), ("args", args, dict, "a dict"),
                 ("confirmed", confirmed, bool, "True or False"), ("dry_run", dry_run, bool, "True or False"))
        wrong = [f"{what} must be {wanted}, not {_reg_show(value)}"
                 for what, value, kind, wanted in kinds if not isinstance(value, kind)]
        return self._refused(Error("BAD_REQUEST", wrong[0]))

    async def _perform(
        self, name: str, args: dict[str, Any], approval: Approval, dry_run: bool, id: Any, cancel: Cancel | None,
        live: Any,
    ) -> Outcome:
        command: Any = self._engine.registry.get(name, "cli")
        if command is None or command.native:  # all others are callable: no coroutine is made for them
            command = await self._find(name, live)
            if isinstance(command, Error):
                return self._refused(command)
        call = Call(command, args, id=id, dry_run=dry_run, cancel=cancel)
        return await self._engine.perform(call, approval, live=live)

    async def _find(self, name: str, live: Any) -> Command | Error:
        """Return the command of exactly this name, or why it cannot be called."""
        command = self._engine.registry.get(name, "cli")
        if command is None:
            await self._look_up(live)
            registry = self._engine.registry
            command = registry.get(name, "cli")
            if command is None:
                return self._missing or _call_unknown(registry, name, "cli")
        if command.native and command.prints:
            return Error("NOT_FOUND", f"{name} prints for itself and returns no result; run it from the command line")
        return command

    async def _look_up(self, live: Any) -> None:
        """Add what only the identity makes known, once; a failure is remembered."""
        if self._find_more is None:
            return
        if live is True:
            import asyncio

            self._gate = self._gate or asyncio.Lock()
            await self._gate.acquire()
        try:
            if self._find_more is not None:
                self._engine.registry = await self._find_more(live)
                self._find_more = None
        except Error as refusal:
            self._missing, self._find_more = refusal, None
        finally:
            if live is True:
                self._gate.release()

    def _live(self, steps: Any) -> Any:
        """Run a coroutine to its end in the kept loop. Passed as live, it has handlers awaited there (CALL)."""
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            return self._loop.run_until_complete(steps)

    def _refused(self, error: Error) -> Outcome:
        return Outcome(False, error=error, exit_code=self._engine.exit_code(error.code))

    # -- for BATCH, which writes its journal between _admit and _run ------------------------------------------------

    def _admit(self, line: _StreamLine, dry_run: bool, cancel: Cancel | None = None) -> Admitted | Outcome:
        """Return the admitted call of a line, or the outcome that refuses it."""
        if line.fault is not None:
            return self._refused(line.fault)
        command = _call_drive(self._find(line.command, self._live))
        if isinstance(command, Error):
            return self._refused(command)
        call = Call(command, line.args, id=line.id, dry_run=dry_run, cancel=cancel)
        admitted: Admitted | Outcome = _call_drive(self._engine.try_admit(call, self._live))
        return admitted

    def _run(self, admitted: Admitted, approval: Approval) -> Outcome:
        """Run an admitted call."""
        return self._drive(self._engine.run(admitted, approval, live=self._live))

    def _drive(self, steps: Any) -> Outcome:
        """Run a call outside of any event loop, and return its outcome once check has seen it."""
        outcome: Outcome = _call_drive(steps)
        if self._check is not None:
            self._check(outcome)
        return outcome


def _stream_is_id(id: Any) -> bool:
    """Tell whether a value can be the id of a line. Pure."""
    if type(id) is str:
        return 0 < len(id) <= STREAM_ID_CHARACTERS
    return type(id) is int and -STREAM_ID_LIMIT < id < STREAM_ID_LIMIT


class _StreamLine:
    """One line: a call, or the fault that keeps it from being one."""

    __slots__ = ("number", "id", "command", "args", "confirmed", "fault")

    def __init__(self, number: int, text: bytes) -> None:
        self.number = number  #: from 1, blank lines included
        self.id: Any = None  #: text or integer as it came; None where none can be read
        self.command: Any = ""  #: name
        self.args: Any = {}  #: JSON object
        self.confirmed: Any = False  #: whether the line says so
        self.fault: Error | None = None  #: why the line is no call; holds nothing of its text
        wrong = self._read(text)
        if wrong:
            self.fault = Error("BAD_REQUEST", wrong)

    def _read(self, text: bytes) -> str:
        """Take the members of the object in the text; return what is wrong with it, empty where nothing is."""
        where = f"line {self.number}"
        if len(text) > STREAM_LINE_BYTES:
            return f"{where} has more than {STREAM_LINE_BYTES:,} bytes; pass so much data as a file"
        try:
            given = _json_loads(text, max_bytes=STREAM_LINE_BYTES)
        except _JsonFault as fault:
            return f"{where} is not JSON: {fault}; write one object on each line"
        if type(given) is not dict:
            return f"{where} is of type {_json_kind(given)}; write an object with id, command and args"
        id = given.get("id")
        if not _stream_is_id(id):
            kind = _json_kind(id)
            wrong = "no id" if id is None else f"an id of type {kind}" if kind not in ("string", "integer") else (
                "an empty id" if id == "" else "an id that is too long")
            return f"{where} has {wrong}; give text or an integer of 1 to {STREAM_ID_CHARACTERS} characters"
        self.id, self.command = id, given.get("command")
        self.args, self.confirmed = given.get("args", self.args), given.get("confirmed", False)
        if not given.keys() <= STREAM_KEYS:
            unknown = [key for key in given if key not in STREAM_KEYS]
            return f"{where} has the unknown key {_json_show(unknown[0])}; a line has id, command, args and confirmed"
        if type(self.command) is not str:
            return f"{where} has no command; give the name of one as text"
        if type(self.args) is not dict:
            return f"{where} has args of type {_json_kind(self.args)}; give an object"
        if type(self.confirmed) is not bool:
            return f"{where} has a confirmed of type {_json_kind(self.confirmed)}; give true or false"
        return ""


class _StreamLines:
    """The lines of one run, read one at a time from a file or standard input, and a tally of their answers."""

    def __init__(self, env: Env, name: str) -> None:
        """Open the input; name: a path, or - for standard input. Raises: NOT_FOUND, BAD_REQUEST."""
        import stat

        self.source = "standard input" if name == "-" else _json_show(name)  #: for messages
        self.number = 0  #: of the line read last
        self.done_bytes = 0  #: how much of the input the lines so far were
        self.total_bytes: int | None = None  #: size of a regular file
        self.answered = self.failed = self.replayed = 0  #: lines
        self.exit_code = 0  #: the highest of the answers
        self._env = env
        self._bar = env.is_terminal("stderr") and not env.is_terminal("stdout")  # answers would be drawn over
        self._lines: Iterator[bytes] = iter(())  # read and split, not given out yet
        self._pieces: list[bytes] = []  # of a line whose end was not read yet
        self._held = 0  # their bytes
        self._ended = False
        self._stream = _stream_open(env, name, self.source)
        self._own = name != "-"
        self._descriptor = _env_descriptor(self._stream)
        if self._descriptor is not None:
            about = os.fstat(self._descriptor)
            self.total_bytes = about.st_size if stat.S_ISREG(about.st_mode) else None

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._own:
            try:
                self._stream.close()
            except OSError:
                pass  # a handler closed what is not its own; how the run ended is what there is to tell

    def next(self, wait: bool = True) -> _StreamLine | None:
        """Return the next line that is not blank, None at the end. Raises: BAD_REQUEST when reading fails.

        wait False: None also where the next one is not there yet; of a regular file, it always is.
        """
        while True:
            for text in self._lines:
                self.number += 1
                self.done_bytes += len(text) + 1
                if self.number == 1 and text.startswith(STREAM_MARK):
                    text = text[len(STREAM_MARK) :]
                if text.strip(STREAM_BLANKS):
                    return _StreamLine(self.number, text)
            if not self._fill(wait):
                return None

    def _fill(self, wait: bool) -> bool:
        """Read some more of the input; return False at its end and, unless wait, where nothing is there yet."""
        if self._ended or not wait and not self._is_there():
            return False
        chunk = self._read()
        self._ended = not chunk
        first, *others = chunk.split(b"\n")
        self._hold(first)
        if others or self._ended and self._held:
            self._lines = iter([b"".join(self._pieces), *others[:-1]])
            self._pieces, self._held = [], 0
            self._hold(others[-1] if others else b"")
        return True

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of a line; of a line that is too long, just enough to show that it is."""
        kept = piece[: STREAM_LINE_BYTES + 1 - self._held]
        self.done_bytes += len(piece) - len(kept)
        self._held += len(kept)
        if kept:
            self._pieces.append(kept)

    def _read(self) -> bytes:
        """Return what the input has, at least one byte, or none at its end. Raises: BAD_REQUEST."""
        number, stream = self._descriptor, self._stream
        try:
            if number is not None:
                return bytes(self._env._patiently(lambda: os.read(number, ENV_CHUNK_BYTES)))
            data = getattr(stream, "read1", stream.read)(ENV_CHUNK_BYTES)
        except (OSError, ValueError) as fault:
            raise Error("BAD_REQUEST", f"cannot read {self.source} after line {self.number} ({_env_reason(fault)}); "
                        "give the lines in another way") from fault
        return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data or b"")

    def _is_there(self) -> bool:
        """Tell whether reading would not wait."""
        if self._descriptor is None or self.total_bytes is not None:
            return True
        if os.name == "nt":
            return False  # no pipe can be asked there
        import select

        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def count(self, outcome: Outcome, ctx: Ctx, replayed: bool = False) -> None:
        """Add an answer to the tally and draw how far the run is."""
        self.answered += 1
        self.failed += not outcome.ok
        self.replayed += replayed
        self.exit_code = max(self.exit_code, outcome.exit_code)
        if self._bar and self.total_bytes:
            ctx.progress(self.done_bytes, self.total_bytes)
        elif self._bar:
            ctx.progress(self.answered, note="lines")

    def finish(self, ctx: Ctx) -> int:
        """Say on standard error how the run went, unless --quiet, and return its exit code."""
        ctx.end_progress()
        if not ctx.options.quiet:
            lines = "1 line" if self.answered == 1 else f"{self.answered:,} lines"
            replayed = f", {self.replayed:,} of them replayed" if self.replayed else ""
            ctx.stderr.write(f"{lines} answered{replayed}, {self.failed:,} failed\n")
        return self.exit_code


def _stream_open(env: Env, name: str, source: str) -> Any:
    """Return a file, or for - standard input, as a binary stream. Raises: NOT_FOUND, BAD_REQUEST."""
    if name == "-":
        stream = env.take_stdin()
        if stream is None:
            raise Error("BAD_REQUEST", "standard input is closed; give the lines through a pipe or as a file")
        return stream
    try:
        return open(os.path.join(env.cwd, name), "rb", buffering=0)
    except FileNotFoundError:
        raise Error("NOT_FOUND", f"there is no file {source}; give the name of one, or - for standard input") from None
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or "no file can have this name"
        raise Error("BAD_REQUEST", f"cannot read {source} ({why}); give another file") from None


def _stream_answer(
    line: _StreamLine, outcome: Outcome, *, replayed: bool = False, ascii_only: bool = False,
    exit_codes: Mapping[str, int] | None = None,
) -> str:
    """Return the answer to a line as JSON on one line, without its end.

    What has no JSON form here is taken out of the outcome, which is why it is to be counted afterwards: a result makes
    it INTERNAL_SERVER_ERROR, with the exit code that exit_codes or the table say.
    """
    answer: dict[str, Any] = {"id": line.id}
    if line.fault is not None:
        answer["line"] = line.number
    answer.update(outcome.to_wire())
    if replayed:
        answer["replayed"] = True
    try:
        return _json_dumps(answer, ascii_only=ascii_only)
    except _JsonFault as fault:
        refused, outcome.ok, outcome.data = outcome.error, False, None
        if refused is None:
            code = "INTERNAL_SERVER_ERROR"
            outcome.error = Error(code, f"the result of {line.command} cannot be written: {fault}")
            outcome.exit_code = exit_code(code, exit_codes)
        else:
            outcome.error = Error(refused.code, refused.message, hint=refused.hint, retryable=bool(refused.retryable),
                                  details={"message": "the details of this error have no JSON form"})
        return _stream_answer(line, outcome, replayed=replayed, ascii_only=ascii_only)


def _stream_allowed(invoker: Invoker, names: Iterable[str]) -> frozenset[str]:
    """Return the names of commands that lines may confirm. Raises: NOT_FOUND for one that is no command."""
    for name in names:
        found = _call_drive(invoker._find(name, invoker._live))
        if isinstance(found, Error):
            raise Error(found.code, f"allow-confirmed: {found.message}", details=found.details, hint=found.hint)
    return frozenset(names)


def _stream_hint(line: _StreamLine, outcome: Outcome, allowed: Collection[str]) -> None:
    """Say in a refusal for want of a confirmation what would confirm the call."""
    error = outcome.error
    if error is None or error.code != "CONFIRMATION_REQUIRED" or error.hint is not None or outcome.entered:
        return
    steps = [] if line.confirmed else ['say "confirmed": true on the line']
    if line.command not in allowed:
        steps.append(f"have the operator start this with --allow-confirmed {line.command}")
    error.hint = " and ".join(steps)


def _stream_run(ctx: Ctx, file: str, allow: Iterable[str]) -> int:
    """Answer every line of the input and return the highest exit code."""
    env, cancel, dry_run = ctx._env or Env(), ctx.cancel, ctx.dry_run
    write, plain, exit_codes = ctx.stdout.write, env.out_ascii, ctx._engine.exit_codes
    _ = ctx.profile  # one that cannot be resolved refuses the run, not each of its lines
    with ctx.app._invoker(ctx._engine) as invoker:
        allowed = _stream_allowed(invoker, allow)
        confirms = Approval("names", allowed)
        lines = _StreamLines(env, file)
        try:
            line = lines.next()
            while line is not None:
                cancel.check()
                if line.fault is not None:
                    outcome = invoker._refused(line.fault)
                else:
                    approval = confirms if line.confirmed else invoker._no_approval
                    outcome = invoker._drive(invoker._perform(
                        line.command, line.args, approval, dry_run, line.id, cancel, invoker._live))
                    if not outcome.ok:
                        _stream_hint(line, outcome, allowed)
                text = _stream_answer(line, outcome, ascii_only=plain, exit_codes=exit_codes)
                write(text + "\n")
                lines.count(outcome, ctx)
                line = lines.next()
        except KeyboardInterrupt:
            raise Error("REQUEST_ABORTED", f"interrupted; lines answered: {lines.answered:,}") from None
        finally:
            lines.close()
    return lines.finish(ctx)


def stream_command(name: str = "stream", *, allow_confirmed: Iterable[str] = ()) -> Command:
    """Return a native command that answers lines of JSON, one call a line: ``app stream < calls.jsonl``.

    allow_confirmed: names of destructive commands that a line may confirm by ``"confirmed": true``; whoever starts the
    program can add to them. The exit code is the highest of all answers; a dry run admits and shows each line.
    Raises: RegistrationError.
    """
    mounted = _stream_names(allow_confirmed)

    def stream(ctx: Ctx, file: str = "-", *, allow_confirmed: tuple[str, ...] = ()) -> int:
        """Answer each line of JSON with one line of JSON."""
        return _stream_run(ctx, file, mounted + allow_confirmed)

    about = {"file": Arg(help=STREAM_FILE_HELP), "allow_confirmed": Arg(help=STREAM_ALLOW_HELP)}
    recorded = native(name=name, lines=True, previews=True, exit_code=int, args=about)(stream)
    return _reg_command(recorded, default_expose=("cli",))


def _stream_names(names: Any) -> tuple[str, ...]:
    """Return the names of a mount's allow_confirmed. Raises: RegistrationError."""
    is_list = hasattr(names, "__iter__") and not isinstance(names, str)
    kept = tuple(names) if is_list else ()
    if not is_list or not all(isinstance(name, str) for name in kept):
        raise RegistrationError(f"allow_confirmed must be a list of command names, not {_reg_show(names)}")
    return kept
# endregion STREAM


# region BATCH -- resumable batch
# needs: LIMITS ERRORS JSON FILES TYPES REG CALL STREAM
# A batch is a stream whose answers outlive the process. Beside the lines stands a journal (FILES: appended to, synced,
# chained by digests), a JSON object a line:
#
#     header  app, version, schema, profile, values, options, salt     values: HMAC of what the profile holds
#     begin   id, digest, command              on the disk before a call that must not happen twice
#     end     id, digest, command, answer      on the disk before the answer is written out
#
# Digests of lines, profile and options are HMACs under the salt, for small secrets can be guessed from a plain digest.
# What a run decides about a line is a pure function of what the records of its id say, the last one above all:
#
#     well      the same content is answered from the journal, other content is a CONFLICT
#     failed    before the handler was entered, or by its own refusal: runs, and may have been corrected
#     begun     and never ended, or in doubt, which is a failure that does not tell what happened: OUTCOME_UNKNOWN,
#               unless the content is the same and the command may be repeated or the operator says so
#
# A doubt ends with a call that ended well and with nothing else. The answer that leaves a line in doubt, or finds it
# there, says "unknown":true. A batch that is stopped, killed or cut off at any moment leaves at most the line in flight
# begun.

BATCH_FORMAT = 1  # of the records
BATCH_WELL, BATCH_FAILED, BATCH_BEGUN, BATCH_DOUBT = "well", "failed", "begun", "doubt"
BATCH_UNKNOWN = ',"unknown":true}'  # ends an answer after which nobody knows what has happened
BATCH_ENDING = ".journal"  # of a journal that nobody named
#: Refusals with these codes, and with CONNECTION_*, do not tell whether something has happened.
BATCH_UNCLEAR_CODES = frozenset((
    "INTERNAL_SERVER_ERROR", "OUTCOME_UNKNOWN", "REQUEST_ABORTED", "REQUEST_TIMEOUT", "TIMEOUT", "UPSTREAM_TOOL_ERROR",
))


def _batch_salted(salt: str) -> Any:
    """Return the HMAC-SHA-256 under a salt that nothing was put into yet. Pure."""
    from hmac import new

    return new(salt.encode(), digestmod="sha256")


def _batch_hmac(salted: Any, value: Any) -> str:
    """Return the HMAC of a value's canonical form, as hexadecimal digits. Pure."""
    mac = salted.copy()
    mac.update(_json_canonical(value))
    digits: str = mac.hexdigest()
    return digits


def _batch_is_unclear(outcome: Outcome, before: str | None, harmless: bool) -> bool:
    """Tell whether nobody knows after this outcome what has happened; before: what was known of the id. Pure.

    harmless: whether the call was of a command that changes nothing.
    """
    error = outcome.error
    if outcome.ok:
        return False
    if error is None or before == BATCH_DOUBT:
        return True
    if harmless or not outcome.entered:
        return False
    unclear = error.code in BATCH_UNCLEAR_CODES or error.code.startswith("CONNECTION_")
    return unclear or outcome.returned or error.relayed


def _batch_state(record: Mapping[str, Any], before: str | None) -> str:
    """Return what is known of an id after one more record of it; before: what was known until then. Pure."""
    if record["kind"] == "begin":
        return BATCH_DOUBT if before in (BATCH_BEGUN, BATCH_DOUBT) else BATCH_BEGUN
    if record["answer"]["ok"]:
        return BATCH_WELL
    return BATCH_DOUBT if before == BATCH_DOUBT or "unknown" in record["answer"] else BATCH_FAILED


def _batch_judge(state: str | None, same: bool, repeatable: bool) -> str:
    """Return what becomes of a line: run, replay, conflict or unknown. Pure.

    state: what is known of its id, None for a new one. same: whether that is about the same content. repeatable:
    whether a call that may have happened can be made again.
    """
    if state is None or state == BATCH_FAILED:
        return "run"
    if state == BATCH_WELL:
        return "replay" if same else "conflict"
    return "run" if same and repeatable else "unknown"


def _batch_is_repeatable(plan: Any) -> bool:
    """Tell whether a plan for a line is a call that may be made twice. Pure."""
    return isinstance(plan, Admitted) and (plan.call.command.readonly or plan.call.command.idempotent)


def _batch_is_header(header: Mapping[str, Any]) -> bool:
    """Tell whether record 0 has the form that a batch writes. Pure."""
    salt, texts = header.get("salt"), [header.get(name) for name in ("app", "version", "schema", "values", "options")]
    return (
        header.get("kind") == "header" and type(header.get("format")) is int and header["format"] == BATCH_FORMAT
        and all(isinstance(text, str) for text in texts) and isinstance(header.get("profile"), (str, type(None)))
        and isinstance(salt, str) and len(salt) == 2 * BATCH_SALT_BYTES and not salt.strip("0123456789abcdef")
    )


def _batch_is_record(record: Mapping[str, Any]) -> bool:
    """Tell whether a record after record 0 has the form that a batch writes. Pure."""
    kind = record.get("kind")
    return (
        (kind == "begin" or kind == "end" and _batch_is_answer(record.get("answer")))
        and isinstance(record.get("digest"), str) and _stream_is_id(record.get("id"))
    )


def _batch_is_answer(answer: Any) -> bool:
    """Tell whether an end record can hold this answer. Pure."""
    if not isinstance(answer, dict):
        return False
    status, error, written = answer.get("exitCode"), answer.get("error"), answer.get("written", {})
    if answer.get("ok") is True:
        sound = "error" not in answer and "unknown" not in answer
    else:
        sound = answer.get("ok") is False and answer.get("unknown", True) is True and isinstance(error, dict) and (
            isinstance(error.get("code"), str) and isinstance(error.get("message"), str))
    return (
        sound and type(status) is int and 0 <= status <= CALL_STATUS_MAX
        and isinstance(written, dict) and all(isinstance(text, str) for text in written.values())
    )


def _batch_header(engine: Engine, salt: str) -> dict[str, Any]:
    """Return record 0 of a journal: what its answers depend on besides the lines.

    Raises: what the profile is refused with.
    """
    profile, salted = engine.profile, _batch_salted(salt)
    schemas = [
        [command.name, command.input.schema, None if command.output is None else command.output.schema]
        for command in engine.registry.commands("cli") if not (command.native and command.prints)
    ]
    return {
        "kind": "header", "format": BATCH_FORMAT, "app": engine.name, "version": engine.version,
        "schema": _json_digest(schemas), "profile": None if profile is None else profile.name,
        "values": _batch_hmac(salted, None if profile is None else profile.facts),
        "options": _batch_hmac(salted, engine.globals_json), "salt": salt,
    }


def _batch_clash(old: Mapping[str, Any], new: Mapping[str, Any], shown: str) -> str:
    """Return a refusal of the answers under one header by a run under another; empty where they hold. Pure."""
    this, that = ("no profile" if header["profile"] is None else f"profile {_json_show(header['profile'])}"
                  for header in (new, old))
    if old["app"] != new["app"]:
        return (f"{shown} belongs to the application {_json_show(old['app'])}, not to {_json_show(new['app'])}; use "
                "another --journal")
    if this != that:
        return f"{shown} was made with {that}, and this run uses {this}; use {that}, or another --journal"
    if old["values"] != new["values"]:
        return f"{this} has changed since {shown} was made; put it back, or use another --journal"
    if old["options"] != new["options"]:
        return f"{shown} was made with other application options; use those, or another --journal"
    return ""


def _batch_lock_path(journal: str) -> str:
    return journal + FILES_LOCK_ENDING


class _BatchBook:
    """A journal, and what it says of each id: a state, a digest and a place, for the answers stay in the file."""

    def __init__(self, path: str) -> None:
        self.path = path  #: of the journal
        self.shown = f"journal {_json_show(path, FILES_SHOWN_CHARACTERS)}"  #: for messages
        self.file = _FilesJournal(path)  #: its records
        self.header: dict[str, Any] = {}  #: record 0, empty while none was read
        self.salted: Any = None  #: for the digests of lines, once start was called
        self.is_new = False  #: whether start made it
        self.records = 0  #: how many follow record 0
        self.known: dict[Any, tuple[str, str, int]] = {}  #: id -> state, digest, offset of its end record (or 0)

    def open(self, writable: bool) -> None:
        """Read a journal that exists.

        Raises: CONFLICT (no journal of a batch), JOURNAL_DAMAGED, and what the journal's open refuses with.
        """
        header = self.file.open(writable)
        if not _batch_is_header(header):
            raise Error("CONFLICT", f"{self.shown} is none that this version of batch writes; use another --journal")
        self.header = header
        for offset, record in self.file.records():
            if not _batch_is_record(record):
                raise self.damage(offset)
            self.note(record, offset)
        for key, (state, digest, offset) in self.known.items():
            if state == BATCH_BEGUN:  # by a run that has ended: what this one learns of its own call settles nothing
                self.known[key] = (BATCH_DOUBT, digest, offset)

    def damage(self, offset: int) -> Error:
        """Return the refusal of a sound record that is none of ours."""
        return Error("JOURNAL_DAMAGED", f"{self.shown} has a record at byte {offset} that no batch writes; restore it "
                     "from a copy, or use another --journal")

    def start(self, engine: Engine, make: bool) -> list[str]:
        """Open the journal, to write it or even make it if told to, and return what has changed since it was made.

        Raises: what open refuses with, and CONFLICT where the answers are those of another application, another
        profile or other options. Writes file.
        """
        try:
            self.open(writable=make)
        except Error as fault:
            if fault.code != "NOT_FOUND":
                raise
            salt = engine.env.random(BATCH_SALT_BYTES).hex()
            self.salted = _batch_salted(salt)
            if make:
                self.header = _batch_header(engine, salt)
                self.file.create(self.header)
                self.is_new = True
            return []
        old, new = self.header, _batch_header(engine, self.header["salt"])
        clash = _batch_clash(old, new, self.shown)
        if clash:
            raise Error("CONFLICT", clash)
        self.salted = _batch_salted(old["salt"])
        changed = []
        if old["version"] != new["version"]:
            changed.append(f"version {_json_show(old['version'])} made the {self.shown}, and this is version "
                           f"{_json_show(new['version'])}")
        if old["schema"] != new["schema"]:
            changed.append(f"the commands have changed since the {self.shown} was made")
        return changed

    def note(self, record: Mapping[str, Any], offset: int) -> None:
        """Take a record into account that stands at this offset."""
        key = _json_key(record["id"])
        state = _batch_state(record, self.known[key][0] if key in self.known else None)
        self.known[key] = (state, record["digest"], offset if record["kind"] == "end" else 0)
        self.records += 1

    def add(self, kind: str, line: _StreamLine, digest: str, answer: Any = None, text: str = "") -> None:
        """Queue a record for the next flush, and take it into account; text: the answer that it is to hold."""
        record = {"kind": kind, "id": line.id, "digest": digest, "command": line.command}
        # No text holds the name of a member raw, for its quotes are escaped there: the first one is the member.
        offset = self.file.add(record, text and ',"answer":{' + text[text.index('"ok":'):])
        self.note({"kind": kind, "id": line.id, "digest": digest, "answer": answer}, offset)

    def replay(self, line: _StreamLine) -> Outcome:
        """Return the outcome that the end record of a line holds. Raises: JOURNAL_DAMAGED, BAD_REQUEST."""
        answer = self.file.read_at(self.known[_json_key(line.id)][2])["answer"]
        return Outcome(True, data=answer.get("data"), exit_code=answer["exitCode"], written=answer.get("written"))

    def report(self) -> dict[str, Any]:
        """Return what the journal holds, as far as it was read."""
        states = [state for state, _, _ in self.known.values()]
        unknown = [key for key, (state, _, _) in self.known.items() if state in (BATCH_BEGUN, BATCH_DOUBT)]
        ids = [_json_loads(key[0]) if isinstance(key, tuple) else key for key in unknown[:BATCH_IDS_SHOWN]]
        return {
            "journal": self.path, "app": self.header.get("app"), "version": self.header.get("version"),
            "profile": self.header.get("profile"), "records": self.records, "lines": len(states),
            "ok": states.count(BATCH_WELL), "failed": states.count(BATCH_FAILED),
            "unknown": {"count": len(unknown), "ids": ids}, "tornBytes": self.file.torn,
            "running": _files_lock_holder(_batch_lock_path(self.path)),
        }


class _BatchRun:
    """One run over the lines: decides about each, calls, records and answers."""

    def __init__(
        self, ctx: Ctx, invoker: Invoker, lines: _StreamLines, book: _BatchBook, *, shard: tuple[int, int] | None,
        rerun: bool, allowed: frozenset[str],
    ) -> None:
        self.ctx = ctx  #: of the batch command
        self.invoker = invoker  #: makes the calls
        self.lines = lines  #: what is to be done
        self.book = book  #: what was done
        self.shard = shard  #: (i, n), or None for all lines
        self.rerun = rerun  #: whether calls that may have happened are made again
        self.called: set[Any] = set()  #: ids that this run called: nobody has looked into the doubts they leave
        self.allowed = allowed  #: names of the commands that a line may confirm
        self.confirms = Approval("names", allowed)  #: for the lines that do
        self.unknown = self.skipped = 0  #: lines whose outcome is not known; lines of other shards
        self.begun: tuple[_StreamLine, str, Admitted] | None = None  #: has a begin record and no end record yet
        self.current: Admitted | None = None  #: the call that is being made

    def run(self) -> None:
        """Answer the lines one by one.

        Raises: REQUEST_ABORTED, OUTPUT_FAILED, READER_GONE, BAD_REQUEST, JOURNAL_DAMAGED.
        """
        try:
            try:
                step = self.next()
                while step is not None and not self.ctx.cancel.cancelled:
                    step = self.take(*step) or self.next()
            finally:
                self.leave()
        except KeyboardInterrupt:
            step = ()  # not None, which would be the end of the lines
        if step is not None:
            self.finish()
            raise self.stopped()

    def stopped(self) -> Error:
        """Return the refusal to go on, at the word of whoever started the batch."""
        said, admitted = f"interrupted; lines answered: {self.lines.answered:,}", self.current
        if admitted is not None and admitted.entered:
            said += f"; the call for the id {_json_show(admitted.call.id)} was under way"
        return Error("REQUEST_ABORTED", said, hint="run the same words again to go on")

    def next(self, wait: bool = True) -> tuple[Any, ...] | None:
        """Return the next step, which is a line of this shard and what becomes of it; None at the end.

        wait False: None also where the next line is not there yet, or is not ours.
        """
        while True:
            line = self.lines.next(wait)
            if line is None or self.is_ours(line):
                return None if line is None else self.decide(line)
            self.skipped += 1
            if not wait:
                return None

    def is_ours(self, line: _StreamLine) -> bool:
        """Tell whether a line belongs to this shard; those without an id belong to the first."""
        if self.shard is None:
            return True
        place, count = self.shard
        return place - 1 == (0 if line.id is None else int(_json_digest(line.id), 16) % count)

    def decide(self, line: _StreamLine) -> tuple[Any, ...]:
        """Return a step: the line, its digest, the verdict, and the Admitted to run or the Outcome to answer with.

        None stands for the outcome that the journal holds.
        """
        if line.fault is not None:
            return line, "", "refuse", self.invoker._refused(line.fault)
        dry = self.ctx.dry_run
        digest = _batch_hmac(self.book.salted, {"command": line.command, "args": line.args})
        key = _json_key(line.id)
        state, before, place = self.book.known.get(key, (None, "", 0))
        same = before == digest
        verdict = _batch_judge(state, same, self.rerun and key not in self.called)
        plan: Any = None
        # Also admitted: an unknown call, which is made again if repeatable, and what this dry run has seen already.
        if verdict == "run" or same and not (verdict == "replay" and place):
            plan = self.invoker._admit(line, dry, self.ctx.cancel)
            if verdict == "unknown" and _batch_is_repeatable(plan):
                verdict = "run"
            if not isinstance(plan, Admitted):
                verdict = "unknown" if verdict == "unknown" else "refuse"
            elif verdict != "unknown" and dry:
                verdict, plan = self.preview(line, digest, verdict, plan)
        if verdict == "conflict" or verdict == "unknown":
            plan = self.not_again(line, verdict, same)
        return line, digest, verdict, plan

    def not_again(self, line: _StreamLine, verdict: str, same: bool) -> Outcome:
        """Return the outcome of a line that is not called for what an earlier call of its id did, or may have done."""
        id, hint = _json_show(line.id), None
        if verdict == "conflict":
            said = (f"the journal has the id {id} with another command or other arguments; give the changed line a new "
                    "id")
        elif same:
            said = (f"an earlier run called {line.command} for the id {id} and did not learn what came of it; find out "
                    "whether it happened")
            hint = "pass --rerun-unknown to call it again"
        else:
            said = (f"the id {id} was called with another command or other arguments, and what came of it is not "
                    "known; find out whether it happened")
            hint = "put the old line back and pass --rerun-unknown to call it again, or give the changed line a new id"
        return self.refusal("CONFLICT" if verdict == "conflict" else "OUTCOME_UNKNOWN", said, hint)

    def refusal(self, code: str, message: str, hint: str | None = None) -> Outcome:
        """Return the outcome of a line that is not run."""
        return self.invoker._refused(Error(code, message, hint=hint))

    def approval(self, line: _StreamLine) -> Approval:
        """Return what the line and the operator together approve."""
        return self.confirms if line.confirmed else self.invoker._no_approval

    def preview(self, line: _StreamLine, digest: str, verdict: str, admitted: Admitted) -> tuple[str, Outcome]:
        """Return the verdict and the answer of a dry run; a call that would be made is taken to end well."""
        try:
            if admitted.needs_approval and verdict == "run":
                self.approval(line).check_covers(admitted)
        except Error as refusal:
            outcome = self.invoker._refused(refusal)
            _stream_hint(line, outcome, self.allowed)
            return "refuse", outcome
        outcome = self.invoker._run(admitted, self.invoker._no_approval)
        if outcome.ok:
            self.book.known[_json_key(line.id)] = (BATCH_WELL, digest, 0)
        return verdict, outcome

    def take(self, line: _StreamLine, digest: str, verdict: str, plan: Any) -> tuple[Any, ...] | None:
        """Run a line if it is to run, and answer it; return the next step where it was looked at already."""
        following = None
        if isinstance(plan, Admitted):
            outcome, text, following = self.call(line, digest, plan)
        else:
            # Not in decide: the record may be that of the line before, which is flushed only after that.
            outcome = self.book.replay(line) if plan is None else plan
            text = self.text(line, outcome, verdict)
            if plan is None and not outcome.ok:  # what it holds is no JSON
                raise self.book.damage(self.book.known[_json_key(line.id)][2])
        self.ctx.stdout.write(text + "\n")
        self.lines.count(outcome, self.ctx, verdict == "replay")
        self.unknown += text.endswith(BATCH_UNKNOWN)
        return following

    def text(self, line: _StreamLine, outcome: Outcome, verdict: str = "", harmless: bool = False) -> str:
        """Return the answer to a line, with what a dry run foresees and with "unknown" where it leaves a doubt.

        What has no JSON form is taken out of the outcome. verdict: as decide said. harmless: see _batch_is_unclear.
        """
        engine, state = self.invoker._engine, None
        text = _stream_answer(
            line, outcome, replayed=verdict == "replay", ascii_only=engine.env.out_ascii, exit_codes=engine.exit_codes,
        )
        if self.ctx.dry_run:
            text = f'{text[:-1]},"would":"{verdict}"}}'
            if verdict == "run" and engine.profile is not None:
                text = f'{text[:-1]},"profile":{_json_dumps(engine.profile.name)}}}'
        if not outcome.ok:
            if line.fault is None:
                state = self.book.known.get(_json_key(line.id), (None,))[0]
            if _batch_is_unclear(outcome, state, harmless):
                text = text[:-1] + BATCH_UNKNOWN
        return text

    def call(
        self, line: _StreamLine, digest: str, admitted: Admitted
    ) -> tuple[Outcome, str, tuple[Any, ...] | None]:
        """Run a call between its two records; return the outcome, the answer, and the next step if it is there.

        The end record of this call and the begin record of the next share one write.
        """
        repeatable = _batch_is_repeatable(admitted)
        if not repeatable and self.begun is None:
            self.begin(line, digest, admitted)
            self.flush(line)
        self.current = admitted
        self.called.add(_json_key(line.id))
        outcome = self.invoker._run(admitted, self.approval(line))
        if not outcome.ok:
            _stream_hint(line, outcome, self.allowed)
        self.begun = None
        if repeatable and not outcome.entered:  # running it again is right in any case
            return outcome, self.text(line, outcome), None
        text = self.end(line, digest, outcome, admitted.call.command.readonly)
        self.current = None
        following = self.next(wait=False)
        if following is not None:
            next_line, next_digest, _, plan = following
            if isinstance(plan, Admitted) and not _batch_is_repeatable(plan):
                self.begin(next_line, next_digest, plan)
        self.flush(line, outcome)
        return outcome, text, following

    def begin(self, line: _StreamLine, digest: str, admitted: Admitted) -> None:
        """Queue the begin record of a call."""
        self.begun = (line, digest, admitted)
        self.book.add("begin", line, digest)

    def end(self, line: _StreamLine, digest: str, outcome: Outcome, harmless: bool = False) -> str:
        """Queue the end record of a call, and return its answer."""
        if not outcome.ok and not _batch_is_answer(outcome.to_wire()):
            error = Error("INTERNAL_SERVER_ERROR", f"{line.command} failed with an error that cannot be recorded")
            outcome.ok, outcome.data, outcome.error, outcome.written = False, None, error, None
            outcome.exit_code = self.invoker._engine.exit_code(error.code)
        text = self.text(line, outcome, harmless=harmless)
        answer = {"ok": outcome.ok, "unknown": True} if text.endswith(BATCH_UNKNOWN) else {"ok": outcome.ok}
        self.book.add("end", line, digest, answer, text)
        return text

    def flush(self, line: _StreamLine, outcome: Outcome | None = None) -> None:
        """Bring the queued records of a call, whose outcome may be there, to the disk. Raises: OUTPUT_FAILED."""
        try:
            self.book.file.flush()
        except Error as fault:
            self.begun = None
            said, details = f"line {line.number} was not run, for its start could not be recorded", None
            if outcome is not None:
                said = f"line {line.number} ran, and its answer, which stands in details, could not be recorded"
                details = {"id": line.id, "answer": outcome.to_wire()}
            raise Error(fault.code, f"{said}: {fault.message}", details=details) from fault

    def leave(self) -> None:
        """Record what is known at the end of a run, however it ends: a call that was not entered may run again."""
        begun, self.begun = self.begun, None
        try:
            if begun is not None and not begun[2].entered:
                self.end(*begun[:2], self.refusal("REQUEST_ABORTED", "the batch ended before the call was made"))
            self.book.file.flush()
        except Error:
            pass  # what is recorded holds; what ended the run is told

    def finish(self) -> int:
        """Say on standard error how the run went, unless --quiet, and return its exit code."""
        lines, ctx = self.lines, self.ctx
        ctx.end_progress()
        if not ctx.options.quiet:
            failed = lines.failed - self.unknown
            known = f"{lines.answered - lines.failed:,} ok ({lines.replayed:,} replayed), {failed:,} failed"
            skipped = f", {self.skipped:,} of other shards" if self.shard is not None else ""
            count = "1 line" if lines.answered == 1 else f"{lines.answered:,} lines"
            dry, where = "dry run of " if ctx.dry_run else "", f"; {self.book.shown}" if self.book.header else ""
            ctx.stderr.write(f"{dry}{count}: {known}, {self.unknown:,} unknown{skipped}{where}\n")
        return lines.exit_code


def _batch_shard(text: str) -> tuple[int, int]:
    """Return (i, n) of a shard that is written i/n. Pure. Raises: USAGE.

    >>> _batch_shard("3/8")
    (3, 8)
    """
    words = text.split("/")
    if len(words) == 2 and all(word.isdigit() and word.isascii() and len(word) <= BATCH_SHARD_DIGITS for word in words):
        place, count = map(int, words)
        if 1 <= place <= count <= BATCH_SHARDS:
            return place, count
    raise _ErrorsUsage([f"--shard: {_json_show(text)} is no shard; write i/n, such as 3/8, with 1 <= i <= n <= "
                        f"{BATCH_SHARDS}"])


def _batch_paths(ctx: Ctx, file: str, journal: str | None, shard: tuple[int, int] | None) -> tuple[str, str]:
    """Return the absolute path of the journal of these lines, and of the file of lines that it was named after.

    The second one is empty for a journal with a name of its own. Raises: USAGE where there is no journal for them.
    """
    cwd = ctx._engine.env.cwd
    lines, base = os.path.join(cwd, file), ""
    if journal is None:
        if file == "-":
            raise _ErrorsUsage(["--journal: lines from standard input need the path of a journal"])
        named = lines
        try:
            lines = os.path.realpath(named)  # by whatever link it is named, it has one journal
        except ValueError:
            pass  # no file has this name, as is told soon
        if os.path.exists(named) and not (os.path.isfile(lines) and os.path.samefile(named, lines)):
            raise _ErrorsUsage([f"--journal: {_json_show(file)} is no regular file, so its lines need the path of a "
                                "journal"])
        base = lines
        journal = base + (f".{shard[0]}-of-{shard[1]}" if shard is not None else "") + BATCH_ENDING
    journal = os.path.join(cwd, journal)
    if os.path.isdir(journal):
        raise _ErrorsUsage([f"--journal: {_json_show(journal, FILES_SHOWN_CHARACTERS)} is a folder; give the path "
                            "of a file"])
    _batch_check_apart(lines, journal)
    return journal, base


def _batch_check_apart(lines: Any, journal: str) -> None:
    """Refuse the lines (a path, a descriptor, or None) as their own journal. Raises: USAGE. Reads the file system."""
    try:
        is_same = lines is not None and os.path.samestat(os.stat(lines), os.stat(journal))
    except (OSError, ValueError):
        return  # one of them is not there
    if is_same:
        raise _ErrorsUsage([f"--journal: {_json_show(journal, FILES_SHOWN_CHARACTERS)} is the file of the lines; give "
                            "the path of another"])


def _batch_check_split(base: str, shard: tuple[int, int] | None) -> None:
    """Refuse lines that a run under another --shard i/n has begun to answer, as the journal beside them shows.

    Raises: CONFLICT, BAD_REQUEST (the folder cannot be read). Reads the file system.
    """
    folder, name = os.path.split(base)
    try:
        entries = sorted(os.listdir(folder))
    except OSError as error:
        raise _files_failure("BAD_REQUEST", "read the folder", folder, error, "name a --journal") from error
    for entry in entries:
        if not (entry.startswith(name) and entry.endswith(BATCH_ENDING)):
            continue
        split = entry[len(name) : -len(BATCH_ENDING)]
        place, of, count = split.partition("-of-")
        if split and not (place.startswith(".") and place[1:].isdecimal() and count.isdecimal()):
            continue  # of other lines
        if (int(count) if split else None) != (shard and shard[1]):
            how = f"with --shard i/{int(count)}" if split else "without --shard"
            other = _json_show(os.path.join(folder, entry), FILES_SHOWN_CHARACTERS)
            raise Error("CONFLICT", f"journal {other} belongs to a run over the same lines {how}; go on {how}, or name "
                        "a --journal")


def _batch_status(ctx: Ctx, path: str) -> int:
    """Print what a journal holds. Raises: NOT_FOUND, FORBIDDEN, CONFLICT, JOURNAL_DAMAGED with the report so far."""
    book = _BatchBook(path)
    try:
        book.open(writable=False)
        report = book.report()
    except Error as fault:
        if fault.code != "JOURNAL_DAMAGED":
            raise
        raise Error(fault.code, fault.message, details=book.report(), hint=fault.hint) from None
    finally:
        book.file.close()
    ctx.stdout.write(_json_dumps(report, pretty=not ctx.options.json, ascii_only=ctx._engine.env.out_ascii) + "\n")
    return 0


def _batch_run(
    ctx: Ctx, file: str, path: str, base: str, shard: tuple[int, int] | None, rerun: bool, allow: Iterable[str]
) -> int:
    """Answer every line of the input, from the journal where it has the answer, and return the highest exit code.

    path: of the journal. base: of the lines it is named after, empty where it has a name of its own.
    """
    lock, book = _FilesLock(_batch_lock_path(path)), _BatchBook(path)
    _ = ctx.profile  # one that cannot be resolved refuses the run, not each of its lines
    with ctx.app._invoker(ctx._engine) as invoker:
        allowed = _stream_allowed(invoker, allow)
        lines = _StreamLines(invoker._engine.env, file)
        try:
            _batch_check_apart(lines._descriptor, path)
            if base:
                _batch_check_split(base, shard)
            if not ctx.dry_run:
                lock.take()
            changed = book.start(invoker._engine, make=not ctx.dry_run)
            if base and book.is_new:
                _batch_check_split_again(book, base, shard)
            if changed and not ctx.options.quiet:
                ctx.stderr.write("".join(f"notice: {change}\n" for change in changed))
            run = _BatchRun(ctx, invoker, lines, book, shard=shard, rerun=rerun, allowed=allowed)
            run.run()
        finally:
            lock.free()
            book.file.close()
            lines.close()
    return run.finish()


def _batch_check_split_again(book: _BatchBook, base: str, shard: tuple[int, int] | None) -> None:
    """Look once more for a run under another split: of two that began at once, each sees the other's journal now.

    Raises: as _batch_check_split; then the new journal is gone again. Writes file.
    """
    try:
        _batch_check_split(base, shard)
    except Error:
        book.file.close()
        _files_remove(book.path)
        raise


def batch_command(name: str = "batch", *, journal: str | None = None, allow_confirmed: Iterable[str] = ()) -> Command:
    """Return a native command that answers lines as stream does, and survives a crash: ``app batch calls.jsonl``.

    Run again with the same lines after any end, it answers what is done from its journal, and makes no call twice that
    must not happen twice; what may have happened is OUTCOME_UNKNOWN until the operator decides.
    journal: its path; by default that of the lines with ".journal" at its end. allow_confirmed: names of destructive
    commands that a line may confirm by ``"confirmed": true``; whoever starts the program can add to them. The exit code
    is the highest of all answers; a dry run admits each line and shows what would become of it.
    Raises: RegistrationError.
    """
    mounted, mounted_journal = _stream_names(allow_confirmed), journal
    if not isinstance(journal, (str, type(None))) or journal == "":
        raise RegistrationError(f"journal must be the path of a file, not {_reg_show(journal)}")

    def batch(
        ctx: Ctx, file: str = "-", *, journal: str | None = None, shard: str | None = None, rerun_unknown: bool = False,
        status: bool = False, allow_confirmed: tuple[str, ...] = (),
    ) -> int:
        """Answer each line of JSON with one line of JSON; run again after any end, it goes on where it stopped."""
        part = None if shard is None else _batch_shard(shard)
        path, base = _batch_paths(ctx, file, mounted_journal if journal is None else journal, part)
        if status:
            return _batch_status(ctx, path)
        return _batch_run(ctx, file, path, base, part, rerun_unknown, mounted + allow_confirmed)

    about = {
        "file": Arg(help=STREAM_FILE_HELP),
        "journal": Arg(help="the file that keeps the answers, from which a later run goes on; by default FILE.journal "
                       "beside the lines, or FILE.3-of-8.journal with --shard 3/8"),
        "shard": Arg(help="run part i of n and leave the other lines to other runs; i/n, such as 3/8", example="3/8"),
        "rerun_unknown": Arg(help="call again what an earlier run called without learning what came of it; find out "
                             "first whether it happened, for it may happen twice"),
        "status": Arg(help="show how many lines ended well, failed or are unknown, and the ids of these, and run "
                      "nothing"),
        "allow_confirmed": Arg(help=STREAM_ALLOW_HELP),
    }
    recorded = native(name=name, lines=True, previews=True, exit_code=int, args=about)(batch)
    return _reg_command(recorded, default_expose=("cli",))
# endregion BATCH


# region PROFILE -- named profiles
# needs: LIMITS ERRORS JSON ENV FILES PATHS SCHEMA TYPES SHAPES REG CALL
# A profile is a named JSON object, such as an address and a credential: the private file <folder>/<name>.json. One rule
# says which of them a call works with, and what named it is the source of what was found:
#
#     option        the name on the command line
#     environment   the name in the store's variable, unless that is empty
#     only          none is named and there is no other; announced, since one day there is another
#
# A name that is not there is refused, never replaced; nothing remembers a current profile.
# No message holds what a profile holds: it says where a fault is and what was expected. An exception of a parser, a
# writer or a constructor carries what it was given, so refusals are raised outside its handler: nothing chains to it.

PROFILE_NOWHERE = "/nonexistent"  # the home of users who have none, by old custom
PROFILE_SUFFIX = ".json"  # of a profile's file
PROFILE_LOCK = ".lock"  # name in a store that no profile can have: held by whoever changes one
PROFILE_SCHEMA_HOME = ("$schema", "$id", "$defs", "definitions")  # of a schema: what its parts may refer to
#: Fields that are no options of the setting command, which has its own of that name; it reads them from --stdin.
PROFILE_TAKEN = REG_RESERVED_FIELDS | {"name", "stdin", "profile", "version"}


def config_dir(name: str, env: Env | None = None) -> str:
    """Return the folder where a program of this name keeps what its user sets up. Nothing is made.

    $XDG_CONFIG_HOME/<name> where that is absolute, else ~/.config/<name>; on Windows %APPDATA%/<name>.
    env: the surroundings, by default those of this process. A user without a home folder has none of these either:
    the path then begins with PROFILE_NOWHERE, and using it is what fails, not the start of the program.
    Raises: REGISTRATION_ERROR for what is no plain file name.
    """
    if not isinstance(name, str) or not _paths_is_name(name):
        raise RegistrationError(f"config_dir needs the program's name as a plain file name, not {_reg_show(name)}")
    environ = (Env() if env is None else env).environ
    variable, below = ("APPDATA", "AppData/Roaming") if os.name == "nt" else ("XDG_CONFIG_HOME", ".config")
    base = environ.get(variable, "")
    if not os.path.isabs(base):
        home = environ.get("HOME", "")
        base = os.path.join(home if os.path.isabs(home) else os.path.expanduser("~"), *below.split("/"))
    return os.path.join(base if os.path.isabs(base) else PROFILE_NOWHERE, name)


class Profile:
    """The profile that a call works with, ``ctx.profile``. Its repr shows name and source alone."""

    __slots__ = ("name", "value", "path", "source", "public", "facts")

    def __init__(
        self, name: str, value: Any, path: str, source: str, shown: dict[str, Any], facts: dict[str, Any]
    ) -> None:
        self.name = name  #: its name
        self.value = value  #: what it holds: an instance of the store's dataclass, else a dict
        self.path = path  #: its file
        self.source = source  #: what named it: "option", "environment" or "only"
        #: JSON that may be shown: name, and values with secrets as ***; all of them where the schema marks no secret
        self.public = {"name": name, "values": shown}
        self.facts = facts  #: JSON that makes it another profile when it changes: all but what is marked secret

    def __repr__(self) -> str:
        return f"<Profile {self.name} from {self.source}>"


class ProfileStore:
    """Profiles in a folder: ``ProfileStore(nk.config_dir("acme") + "/profiles", Server, variable="ACME_PROFILE")``.

    directory: made, for its owner alone, with the first profile. schema: a dataclass, a TypedDict or a JSON Schema of
    an object; a field of nk.Arg(secret=True) is never shown, and where no field is so marked, none is.
    create_hint(name, path): text added to the refusal of a profile that is missing, whose name is "default" where none
    was named. announce(text): called in place of writing a line on standard error. variable: environment variable that
    may name a profile.

    Files and folder that others may read, write or own are refused with FORBIDDEN and the command that mends them.
    The constructor records. Raises: REGISTRATION_ERROR for arguments of a wrong kind.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schema: Any,
        create_hint: Callable[[str, str], str | None] | None = None,
        announce: Callable[[str], object] | None = None,
        *,
        variable: str | None = None,
    ) -> None:
        path = os.fspath(directory) if isinstance(directory, (str, os.PathLike)) else directory
        marks = ("__dataclass_fields__", "__required_keys__")
        typed = isinstance(schema, type) and any(hasattr(schema, mark) for mark in marks)
        named = isinstance(variable, str) and variable and not {"=", "\0"} & set(variable)
        for option, value, good, what in (
            ("directory", path, isinstance(path, str) and path, "the path of a folder"),
            ("schema", schema, typed or isinstance(schema, dict), "a dataclass, a TypedDict or a JSON Schema"),
            ("create_hint", create_hint, create_hint is None or callable(create_hint), "a function of name and path"),
            ("announce", announce, announce is None or callable(announce), "a function of a text"),
            ("variable", variable, variable is None or named, "the name of an environment variable"),
        ):
            if not good:
                raise RegistrationError(f"ProfileStore({option}=...) must be {what}, not {_reg_show(value)}")
        self.directory = path  #: the folder
        self.schema = schema  #: what a profile must be
        self.create_hint, self.announce = create_hint, announce  #: the program's own words, or None
        self.variable = variable  #: environment variable that may name a profile, or None
        self.setter = ""  #: name of the mounted command that makes a profile, empty where none is
        self._made: tuple[Shape, Sequence[Field]] | None = None

    def _compiled(self) -> tuple[Shape, Sequence[Field]]:
        """Return what a profile must be, and its members. Raises: REGISTRATION_ERROR for a faulty schema."""
        if self._made is None:
            self._made = _shapes_options(self.schema, "ProfileStore")[:2]
        return self._made

    @property
    def fields(self) -> Sequence[Field]:
        """The members of a profile, in order of declaration. Raises: REGISTRATION_ERROR for a faulty schema."""
        return self._compiled()[1]

    def path_for(self, name: str) -> str:
        """Return the path of the file that holds, or would hold, a profile. Raises: BAD_REQUEST for a faulty name."""
        self._check_name(name)
        return os.path.join(self.directory, name + PROFILE_SUFFIX)

    def list(self) -> Sequence[str]:
        """Return the sorted names. Raises: FORBIDDEN, BAD_REQUEST for a folder that is unsafe or cannot be read."""
        stems = [entry[: -len(PROFILE_SUFFIX)] for entry in self._entries() if entry.endswith(PROFILE_SUFFIX)]
        return sorted(filter(_paths_is_name, stems))

    def read(self, name: str) -> Any:
        """Return what a profile holds, defaults filled in: an instance of the dataclass, else a dict.

        Raises: NOT_FOUND, BAD_REQUEST (a faulty name, no JSON, too large), FORBIDDEN, VALIDATION_ERROR.
        """
        return self._find(name).value

    def write(self, name: str, value: Any) -> None:
        """Make or replace a profile, atomically and durably.

        value: JSON, or what read() returns. Raises: VALIDATION_ERROR, BAD_REQUEST for a faulty name, CONFLICT for one
        that differs from another in case alone, FORBIDDEN, OUTPUT_FAILED, LOCKED. Writes file.
        """
        self._change(name, lambda there: value)

    def update(self, name: str, change: Callable[[dict[str, Any] | None], Any]) -> None:
        """Replace a profile by change(old), while no other process can: old is its JSON object, None where none is.

        Other changes are waited for, PROFILE_LOCK_SECONDS at most. Raises: what write() does, what change() does, and
        what read() does but VALIDATION_ERROR: change() may mend an object that does not fit. Writes file.
        """
        self._change(name, lambda there: change(self._load(name) if there else None))

    def delete(self, name: str) -> None:
        """Remove a profile. Raises: NOT_FOUND, BAD_REQUEST, FORBIDDEN, OUTPUT_FAILED, LOCKED. Writes file."""
        path = self._existing_path(name)
        lock = self._lock()
        try:
            os.unlink(path)
        except OSError as error:
            raise _files_failure("OUTPUT_FAILED", "remove", path, error, "remove it by hand") from error
        finally:
            lock.free()

    def resolve(
        self, name: str | None = None, env: Env | None = None, *, fallback: bool = True, quiet: bool = False
    ) -> Profile | None:
        """Return the profile that is named by the option, else by the variable, else the only one there is.

        name: what the option said, None where it was not given. env: the surroundings, by default those of this
        process. fallback=False: None where neither names one. quiet: the only one is not announced. Writes stderr.
        Raises: NOT_FOUND for a name that is not there, or where there is none at all; BAD_REQUEST where several are
        there and none is named; what read() does.
        """
        env = Env() if env is None else env
        chosen, source = self._choose(name, env, fallback)
        if chosen is None:
            return None
        found = self._find(chosen, source)
        if source == "only" and not quiet:
            text = f"using profile {chosen}, the only one there is"
            if self.announce is not None:
                self.announce(text)
            else:
                env.write_err(text + "\n")
        return found

    def _choose(self, name: str | None, env: Env, fallback: bool = True) -> tuple[str | None, str]:
        """Return the name and source of the profile that resolve() would read; name None where it returns None.

        Raises: what resolve() does before it reads.
        """
        source, origin = "option", ""
        if name is None and self.variable is not None:
            source, origin, name = "environment", f" (from {self.variable})", env.environ.get(self.variable) or None
        if name is not None:
            self._existing_path(name, origin)  # refuses a name that is not there
            return name, source
        names = self.list() if fallback else []
        if fallback and not names:
            folder = _json_show(self.directory, FILES_SHOWN_CHARACTERS)
            raise Error("NOT_FOUND", f"there is no profile in {folder} yet; make one", hint=self._hint("default"))
        if len(names) > 1:
            how = "with --profile" + (f" or {self.variable}" if self.variable else "")
            raise Error("BAD_REQUEST", f"{len(names)} profiles are there and none is named; name one {how}: "
                        + _profile_show_names(names), details={"profiles": names})
        return (names[0] if names else None), "only"

    def _find(self, name: str, source: str = "option") -> Profile:
        """Return a profile. Raises: as read()."""
        path = self._existing_path(name)
        what = f"profile {name} in {_json_show(path, FILES_SHOWN_CHARACTERS)}"
        whole, value = self._complete(self._load(name), what)
        shape = self._compiled()[0]
        facts = _json_copy(whole)
        for place in shape.locate(whole, "secret"):
            _call_put(facts, place, CALL_MASK)
        shown = facts
        if not shape.has_role("secret"):
            shown = {field.name: CALL_MASK for field in self.fields if field.name in whole}
        return Profile(name, value, path, source, shown, facts)

    def _entries(self) -> Sequence[str]:
        """Return what is in the folder, nothing where it is not there yet; refuse one that others can write."""
        try:
            state, entries = os.stat(self.directory), os.listdir(self.directory)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise _files_failure("BAD_REQUEST", "list", self.directory, error, "give the store a folder") from error
        _files_judge_folder(state, self.directory)
        return entries

    def _check_name(self, name: Any, origin: str = "") -> None:
        """Refuse what is no name of a profile; origin: where it comes from, in parentheses. Raises: BAD_REQUEST."""
        if not isinstance(name, str) or not _paths_is_name(name):
            raise Error("BAD_REQUEST", f"{_reg_show(name)}{origin} is no name of a profile; use 1 to "
                        f"{PATHS_NAME_CHARACTERS} ASCII letters, digits, dots, _ and -, with a letter or digit first, "
                        "no dot last, and no device of Windows")

    def _existing_path(self, name: str, origin: str = "") -> str:
        """Return the path of a profile whose name is exactly that of a file. Raises: BAD_REQUEST, NOT_FOUND."""
        self._check_name(name, origin)
        path = self.path_for(name)
        if name + PROFILE_SUFFIX in self._entries():
            return path
        names = self.list()
        others = f"the profiles are {_profile_show_names(names)}" if names else "there is none yet"
        raise Error("NOT_FOUND", f"there is no profile {_json_show(name)}{origin}; {others}",
                    details={"profiles": names}, hint=self._hint(name))

    def _hint(self, name: str) -> str | None:
        """Return what the program says of a profile that is missing, else which of its commands makes one."""
        made = f"{self.setter} {name} makes it" if self.setter else None
        try:
            hint = self.create_hint(name, self.path_for(name)) if self.create_hint is not None else None
        except Exception:
            hint = None  # the refusal matters more than a hint that fails
        return hint if isinstance(hint, str) and hint else made

    def _load(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a profile's file. Raises: as read() but VALIDATION_ERROR."""
        path = self.path_for(name)
        data = _files_read(path, PROFILE_BYTES, private=True)
        what = f"profile {name} in {_json_show(path, FILES_SHOWN_CHARACTERS)}"
        return _profile_parse(data, what, "correct the file or remove the profile")

    def _complete(self, value: Any, what: str) -> tuple[dict[str, Any], Any]:
        """Return a JSON object with its defaults, and what read() returns for it. Raises: VALIDATION_ERROR."""
        shape, fields = self._compiled()
        issues = shape._judge().issues(value, hidden=[()])  # no part of it is ever shown
        if issues:
            raise _schema_error(issues, what)
        try:
            whole = shape.complete(value)
            for field in fields:  # those of a raw schema
                if field.default is not TYPES_ABSENT and field.name not in whole:
                    whole = dict(whole, **{field.name: _json_copy(field.default)})
            return whole, shape.to_python(whole)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass  # whatever a constructor raises, values may stand in it
        raise Error("VALIDATION_ERROR", f"{what}: {shape.word} cannot be made of these values; correct them")

    def _lock(self) -> _FilesLock:
        """Return the lock of the folder, taken."""
        lock, env = _FilesLock(os.path.join(self.directory, PROFILE_LOCK)), Env()
        lock.take(wait_seconds=PROFILE_LOCK_SECONDS, clock=env.clock, sleep=env.sleep)
        return lock

    def _change(self, name: str, make: Callable[[bool], Any]) -> None:
        """Write what make(whether the profile is there) returns, while no other process changes one."""
        path = self.path_for(name)
        _files_private_directory(self.directory)
        lock = self._lock()
        try:
            entry, entries = os.path.basename(path), self._entries()
            for other in entries:
                if other.casefold() == entry.casefold() and other != entry:
                    raise Error("CONFLICT", f"the name {name} differs from the file {_json_show(other)} in case alone; "
                                "use that name or another")
            _files_write(path, self._encode(name, make(entry in entries)), durable=True)
        finally:
            lock.free()

    def _encode(self, name: str, value: Any) -> bytes:
        """Return the text of a profile's file, which has proven to be readable. Raises: VALIDATION_ERROR."""
        try:
            value = self._compiled()[0].to_json(value)
        except (_TypesFault, _JsonFault):  # it may be JSON already
            value = {key: value[key] for key in value.keys()} if hasattr(value, "keys") else None
        why = "" if isinstance(value, dict) else "is neither a mapping nor what read() returns"
        try:
            data = (_json_dumps(value, pretty=True) + "\n").encode("utf-8")
            value = _json_loads(data, max_bytes=PROFILE_BYTES)
        except _JsonFault as fault:
            why = "holds " + fault.reason
        if why:
            raise Error("VALIDATION_ERROR", f"the value of profile {name} {why}; give a JSON object")
        self._complete(value, f"profile {name}")  # refuses what read() would
        return data


def _profile_parse(data: bytes, what: str, remedy: str) -> dict[str, Any]:
    """Return the JSON object in these bytes. Pure. Raises: BAD_REQUEST, which quotes nothing of it."""
    try:
        value = _json_loads(data, max_bytes=PROFILE_BYTES)
        why = "" if isinstance(value, dict) else f"a JSON {_json_kind(value)} and no object"
    except _JsonFault as fault:
        why = f"no JSON: {fault}"
    if why:
        raise Error("BAD_REQUEST", f"{what} is {why}; {remedy}")
    return value  # type: ignore[no-any-return]


def _profile_show_names(names: Sequence[str]) -> str:
    """Return names as a list for a message, the first of very many. Pure."""
    more = len(names) - PROFILE_NAMES_SHOWN
    return ", ".join(names[:PROFILE_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# The commands


def profile_commands(store: ProfileStore, prefix: str = "profile") -> list[Command]:
    """Return native commands over a store: <prefix>-list, -show [NAME], -set NAME --<field> ..., and -remove NAME.

    App(profiles=store, commands=nk.profile_commands(store)) mounts them. No secret is shown; the source of the profile
    in force says what named it, as in Profile. -set takes each field of the schema as an option, an object whole, and
    with --stdin a JSON object of further values, so that no secret need stand on a command line; required secrets that
    are still missing are asked for without echo. A field whose name means something else there (name, stdin, profile,
    a framework option) comes from standard input alone.
    Raises: REGISTRATION_ERROR.
    """

    def list_profiles(ctx: Ctx) -> list[dict[str, object]]:
        """List the profiles and say which one is in force."""
        chosen, source = _profile_in_force(store, ctx)
        return [{"name": name, "inForce": name == chosen, "source": source if name == chosen else None}
                for name in store.list()]

    def show_profile(ctx: Ctx, name: str | None = None) -> dict[str, object]:
        """Show a profile, by default the one in force; its secrets are hidden."""
        if name is None:
            found: Any = store.resolve(_profile_named(ctx), ctx._env, quiet=True)
            source = found.source
        else:
            found = store._find(name)
            chosen, source = _profile_in_force(store, ctx)
            source = source if name == chosen else None
        return {"name": found.name, "source": source, "path": found.path, "values": found.public["values"]}

    def set_profile(given: dict[str, Any], ctx: Ctx) -> dict[str, object]:
        """Make a profile or change one; what is not given stays as it is."""
        return _profile_set(store, given, ctx)

    def remove_profile(name: str, ctx: Ctx) -> dict[str, object]:
        """Remove a profile for good."""
        _profile_check_caller(ctx)
        store.delete(name)
        return {"removed": name}

    if not isinstance(store, ProfileStore):
        raise RegistrationError(f"profile_commands needs a ProfileStore, not {_reg_show(store)}")
    setattr(set_profile, "__knaif_input__", lambda: _profile_options(store))
    names = _profile_field_names(store.schema)
    store.setter = f"{prefix}-set"
    about = {"name": Arg("name of the profile")}
    made = (
        native(name=f"{prefix}-list", readonly=True)(list_profiles),
        native(name=f"{prefix}-show", readonly=True, args=about)(show_profile),
        native(name=f"{prefix}-set", input={"type": "object", "properties": dict.fromkeys(names, True)})(set_profile),
        native(name=f"{prefix}-remove", destructive=True, args=about)(remove_profile),
    )
    return [_reg_command(each, default_expose=("cli",)) for each in made]


def _profile_named(ctx: Ctx) -> str | None:
    """Return what --profile said on the line of a call, None where it was not given."""
    return getattr(ctx._engine, "profile_name", None)


def _profile_in_force(store: ProfileStore, ctx: Ctx) -> tuple[str | None, str | None]:
    """Return the name and source of the profile in force; (None, None) where that is refused."""
    try:
        return store._choose(_profile_named(ctx), ctx._env or Env())
    except Error:
        return None, None


def _profile_field_names(schema: Any) -> Sequence[str]:
    """Return the names that the setting command takes as options, as far as they show without compiling. Cheap."""
    if isinstance(schema, dict):
        names = schema.get("properties")
    elif hasattr(schema, "__dataclass_fields__"):
        names = schema.__dataclass_fields__
    else:
        names = dict.fromkeys(schema.__required_keys__ | schema.__optional_keys__)
    found = names if isinstance(names, dict) else ()  # a faulty schema is refused when it is compiled
    return ["name", *filter(_profile_is_option, found), "stdin"]


def _profile_is_option(name: Any) -> bool:
    """Tell whether a field can be an option of the setting command. Pure."""
    return _reg_is_name(name) and name.replace("_", "-") not in PROFILE_TAKEN


def _profile_options(store: ProfileStore) -> tuple[Shape, list[Field]]:
    """Return what the setting command takes: a name, every field of a profile that can be an option, and stdin.

    Nothing is required or has a default, since what is left out stays as it is; the profile as a whole is checked when
    it is written. A missing name must not be filled from standard input, which may hold a secret.
    """
    shape, fields = store._compiled()
    text: Any = _types_scalar(str)
    flag: Any = _types_scalar(bool)
    name, piped = Field("name", text.schema, shape=text), Field("stdin", flag.schema, shape=flag)
    name.help = "name of the profile"
    piped.help = "read a JSON object of further values from standard input"
    name.required = piped.required = False
    options = [name]
    for field in fields:
        if not _profile_is_option(field.name):
            continue
        inner = field.shape or Shape(field.schema, _json_copy, _types_write_free, "a JSON value", asserts=False)
        option = Field(field.name, field.schema, shape=inner)
        option.required, option.option_only = False, True
        option.help, option.dashed, option.path = field.help, field.dashed, field.path
        if _profile_is_secret(store, field):
            option.secret, option.shape = True, inner.copy(marks=inner.marks | {"secret"})
        options.append(option)
    options.append(piped)
    made = _types_object(options, dict, "an object")
    home = {key: shape.schema[key] for key in PROFILE_SCHEMA_HOME if key in shape.schema}
    return made.copy(schema=dict(home, **made.schema), read=None, asserts=shape.asserts), options


def _profile_is_secret(store: ProfileStore, field: Field) -> bool:
    """Tell whether a field is never shown: it is marked secret, or no field is."""
    return field.secret or not store._compiled()[0].has_role("secret")


def _profile_check_caller(ctx: Ctx) -> None:
    """Refuse a call that came as a line: it could lead a token that it does not know elsewhere. Raises: FORBIDDEN."""
    if getattr(ctx._engine, "capture", False):
        raise Error("FORBIDDEN", "profiles are changed from the command line alone")


def _profile_set(store: ProfileStore, given: Mapping[str, Any], ctx: Ctx) -> dict[str, object]:
    """Merge values into a profile and return what it holds then, with its secrets hidden."""
    env = ctx._env or Env()
    _profile_check_caller(ctx)
    values = {key: value for key, value in given.items() if key not in ("name", "stdin")}
    if "name" not in given:
        raise Error("BAD_REQUEST", "no profile is named; write the name of the profile to set after the command")
    name = given["name"]
    store._check_name(name)  # before anything is read or asked
    if given.get("stdin"):
        values = {**_profile_piped(env), **values}
    known = {**(store._load(name) if name in store.list() else {}), **values}
    missing = [field for field in store.fields if field.required and field.name not in known]
    if all(_profile_is_secret(store, field) for field in missing):  # else the answers would be given in vain
        for field in missing:
            answer = env.ask_secret(f"{field.public_name}: ")
            if not answer:
                break
            values[field.name] = _profile_read_answer(store, field, answer)
        missing = [field for field in missing if field.name not in values]
    if missing:
        raise Error("VALIDATION_ERROR", f"profile {name} lacks {', '.join(field.public_name for field in missing)}; "
                    "give each as an option, or all in a JSON object with --stdin")
    store.update(name, lambda old: {**(old or {}), **values})
    found = store._find(name)
    return {"name": name, "path": found.path, "values": found.public["values"]}


def _profile_piped(env: Env) -> dict[str, Any]:
    """Return the JSON object on standard input. Raises: BAD_REQUEST, which quotes nothing of it."""
    data = env.read_stdin(PROFILE_STDIN_SECONDS)
    if data is None:
        raise Error("BAD_REQUEST", "--stdin: nothing is piped in; pipe in a JSON object of values")
    return _profile_parse(data, "standard input", "pipe in a JSON object of values")


def _profile_read_answer(store: ProfileStore, field: Field, answer: str) -> Any:
    """Return what an answer at the terminal means as the value of a field. Raises: BAD_REQUEST without the answer."""
    try:
        return _types_read_text(field.schema, answer, store._compiled()[0].schema)
    except _TypesFault as unreadable:
        expected = unreadable.expected
    raise Error("BAD_REQUEST", f"{field.public_name}: expected {expected}; run the command again")
# endregion PROFILE


# region PLAN -- envelope, references, approval, execution
# needs: LIMITS ERRORS JSON PATHS SCHEMA TYPES REG CALL
# What a model may say is one JSON object, and nothing in it can act, approve, or name anything but a tool:
#
#     text   = [byte order mark] *think  object | "```" ["json"] object "```"     white space anywhere between these
#     think  = "<think>" whatever holds no "<think>" "</think>"
#     object = {"plan": [{"tool": name, "args": {...}, "output"?: "$name"}, ...]}
#
# A string in args, at any depth, is one of
#     "$name", "$name.key.0"     a reference: an earlier step's result or a part of it stands in its place
#     "$$..."                    text that begins with one $ less
#     any other                  text, which must not hold the $name of an output
#
# check   reads, finds the tools, and admits every step whose arguments are all there; of the others it judges what can
#         be judged without the results. It calls nothing of the program's but hooks.before_call.
# execute runs exactly what was checked: arguments are kept, not read again, and typed values are made afresh for each
#         run. A path that leads elsewhere than at the check is refused. Arguments with references are admitted, whole,
#         by the same function, as soon as the results are there; results are data and never searched for references.
# Approval comes from outside: True, the digest of the plan, or a function. All destructive steps without references are
# approved before the first step runs; one with references is approved by a function when it is reached, or with the
# digest of the rest of the plan.

PLAN_KEYS = frozenset(("tool", "args", "output"))
PLAN_REQUIRED = ("tool", "args")
PLAN_ROOT_KEYS = frozenset(("plan",))
PLAN_BLANKS = " \t\n\r"
PLAN_NAME_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
PLAN_NAME_LATER = PLAN_NAME_FIRST | frozenset("0123456789")
PLAN_DIGEST_DIGITS = frozenset("0123456789abcdef")
PLAN_DIGEST_LENGTH = 64
PLAN_REMEDY = 'give exactly one JSON object, {"plan": [{"tool": "...", "args": {...}}]}, and nothing else'
#: kind -> a value of it, which stands for a reference while the arguments around it are judged; never changed
PLAN_SAMPLES = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}, "null": None}
#: keywords of a schema that say where a fault is without regard to the members beside it
PLAN_PLAIN_WORDS = frozenset(
    "type properties required additionalProperties items prefixItems enum const minimum maximum exclusiveMinimum "
    "exclusiveMaximum multipleOf minLength maxLength pattern format minItems maxItems uniqueItems minProperties "
    "maxProperties contentEncoding title description default examples $defs definitions $schema".split()
)


class _PlanStep:
    """One step of a checked plan. What Plan.steps gives are copies: changing one changes nothing that runs."""

    __slots__ = ("tool", "args", "output", "refs", "admitted", "command")

    def __init__(
        self, command: Command, args: Any, output: str | None, refs: tuple[Any, ...], admitted: Admitted | None
    ) -> None:
        self.tool = command.name  #: name of the command
        #: final JSON, secrets as ***, where no reference stands in it; else as given. (Inside a Plan: as the model
        #: means it, $$ read and anything in the place of a reference)
        self.args = args
        self.output = output  #: the name its result is bound to, without the $, or None
        #: the references in it: (keys and indexes from the root of args, "$name.key", "name", ("key",))
        self.refs = refs
        #: the call as it was checked, without typed values; None where a reference stands in its arguments
        self.admitted = admitted
        self.command = command  #: what is called


class Plan:
    """A plan that was checked as a whole: ``app.check(text)`` makes it, ``app.execute(plan)`` runs it.

    What is executed is what was checked, however often: nothing that a caller does to ``steps`` changes it.
    """

    __slots__ = ("_engine", "_steps", "_digest")

    def __init__(self, engine: Engine, steps: Sequence[_PlanStep]) -> None:
        self._engine = engine
        self._steps = tuple(steps)
        self._digest = ""

    @property
    def steps(self) -> list[_PlanStep]:
        """The steps, as new copies: tool, args, output, refs, admitted, command."""
        return [_plan_public(self._engine, step, step.admitted) for step in self._steps]

    @property
    def digest(self) -> str:
        """What an approval of this plan quotes: 64 hexadecimal digits. Computed when asked for.

        SHA-256 over application, version, the tools' schemas, sandbox, globals, profile, and all arguments, with
        defaults and resolved paths where they are known, else with their references. Secrets enter it salted.
        """
        if not self._digest:
            engine, calls = self._engine, []
            for step in self._steps:
                call = Call(step.command, step.args, surface="agent")
                admitted = step.admitted or Admitted(call, step.args, None, [], engine)
                refs = [[_json_pointer(place), text] for place, text, _, _ in step.refs]
                calls.append({"call": admitted.digest, "output": step.output, "refs": refs})
            self._digest = _json_digest({"app": engine.name, "version": engine.version, "plan": calls})
        return self._digest

    def to_wire(self) -> dict[str, Any]:
        """Return the envelope, which reads back to the same plan: {"plan": [{"tool", "args", "output"?}]}. Pure."""
        plan = []
        for step in self._steps:
            output = {} if step.output is None else {"output": "$" + step.output}
            plan.append({"tool": step.tool, "args": _plan_given(step), **output})
        return {"plan": plan}

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[_PlanStep]:
        return iter(self.steps)

    def __repr__(self) -> str:
        return f"<Plan {', '.join(step.tool for step in self._steps) or 'of no steps'}>"


class PlanResult:
    """How the execution of a plan ended, or what a dry run found; results of earlier steps stay when a later one fails.

    error.details holds "step", the index of the step at fault, and "argument", a JSON pointer into its args, where
    there is one.
    """

    __slots__ = ("plan", "error", "exit_code", "rest", "_rows")

    def __init__(
        self, plan: Plan | None, *, error: Error | None = None, exit_code: int = 0, rest: Plan | None = None
    ) -> None:
        self.plan = plan  #: what was executed; None where there was no plan to execute
        self.error = error  #: why it stopped, None on success
        self.exit_code = exit_code  #: 0 to 255
        self.rest = rest  #: what remains to be done, checked, once it is approved: execute(rest, confirmed=rest.digest)
        self._rows: list[tuple[int, _PlanStep, Admitted | None, Outcome | None, str, str | None]] = []

    @property
    def ok(self) -> bool:
        """Whether every step succeeded, or in a dry run: whether the plan is sound."""
        return self.error is None

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps that ended, as new objects: step (its index), tool, args (secrets as ***) and outcome.

        In a dry run all steps, with "would" ("run", "ask" or "refuse": what would become of the step) and "reason"
        (one sentence, or None); outcome is None unless a command with previews=True was called.
        """
        rows = []
        for index, step, admitted, outcome, would, reason in self._rows:
            row = {"step": index, "tool": step.tool, "args": _plan_shown(step, admitted), "outcome": outcome}
            rows.append(dict(row, would=would, reason=reason) if would else row)
        return rows

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of this result: ok, exitCode, digest, plan, steps, and error and rest where there.

        rest: {"digest", "plan"}.
        """
        wire: dict[str, Any] = {"ok": self.ok, "exitCode": self.exit_code}
        if self.plan is not None:
            wire.update(digest=self.plan.digest, **self.plan.to_wire())
        wire["steps"] = self.steps
        for row in wire["steps"]:
            outcome = row.pop("outcome")
            if outcome is not None:
                row["outcome"] = outcome.to_wire()
                if outcome.error is not None:
                    row["outcome"]["error"] = _plan_error_wire(outcome.error)
        if self.error is not None:
            wire["error"] = _plan_error_wire(self.error)
        if self.rest is not None:
            wire["rest"] = {"digest": self.rest.digest, **self.rest.to_wire()}
        return wire


def _plan_error_wire(error: Error) -> dict[str, object]:
    """Return the JSON object of a refusal; details that a handler made and that are no JSON are left out. Pure."""
    wire = error.to_wire()
    try:
        _json_copy(wire)
    except _JsonFault:
        wire["details"] = {"message": "the details of this error have no JSON form"}
    return wire


def _plan_shown(step: _PlanStep, admitted: Admitted | None) -> Any:
    """Return the arguments of a step as people may see them, as a copy: final where admitted, else as given. Pure."""
    return _plan_given(step) if admitted is None else _json_copy(admitted._facts.resolved_call(admitted)["args"])


def _plan_public(engine: Engine, step: _PlanStep, admitted: Admitted | None) -> _PlanStep:
    """Return a copy of a step, through which nobody reaches what runs."""
    copied = None
    if admitted is not None:
        args = _json_copy(admitted.args)
        copied = Admitted(Call(step.command, args, surface="agent"), args, None, [*admitted.paths], engine)
    return _PlanStep(step.command, _plan_shown(step, admitted), step.output, step.refs, copied)


def _plan_given(step: _PlanStep) -> Any:
    """Return the arguments of a step as a plan writes them: references, and $$ where other text begins with $."""
    args = _plan_escape(step.args)
    for place, text, _, _ in step.refs:
        _call_put(args, place, text)
    return args


def _plan_escape(value: Any) -> Any:
    """Return a copy of a value in which text that begins with $ has one more. Pure."""
    if isinstance(value, str):
        return "$" + value if value.startswith("$") else value
    if isinstance(value, dict):
        return {key: _plan_escape(item) for key, item in value.items()}
    return [_plan_escape(item) for item in value] if isinstance(value, list) else value


# Refusals


def _plan_refusal(reason: str) -> Error:
    """Return the PLAN_INVALID of what is no plan at all; reason: a noun phrase without any of the text."""
    return Error("PLAN_INVALID", f"this is no plan: {reason}; {PLAN_REMEDY}")


def _plan_fault(code: str, message: str, place: Sequence[str | int]) -> Error:
    """Return the error of one place in the arguments of a step, for _plan_at to complete."""
    return Error(code, message, details={"argument": _json_pointer(place)})


def _plan_at(error: Error, index: int, name: str = "", argument: str | None = None, foreign: bool = False) -> Error:
    """Return an error as that of a step: its index is named and in details, as is the argument where it is known.

    foreign: the details are those of a handler, and mean what it says.
    """
    given = error.details
    details = dict(given) if isinstance(given, dict) and not foreign else {} if given is None else {"details": given}
    details["step"] = index
    if argument is not None:
        details["argument"] = argument
    where = f"plan[{index}]" + (f" ({name})" if name else "")
    if details.get("argument") and error.code in ("PLAN_INVALID", "SANDBOX_ESCAPE"):
        where += f" at {_json_show(details['argument'])}"
    made = Error(error.code, f"{where}: {error.message}", details=details, hint=error.hint, retryable=error.retryable,
                 relayed=error.relayed)
    made.__cause__ = error.__cause__
    return made


def _plan_argument(engine: Engine, call: Call, error: Error) -> str | None:
    """Return the pointer to the argument for which a call was not admitted, None where no one of them is at fault."""
    command, args = call.command, call.args
    details = error.details if isinstance(error.details, dict) else {}
    issues = details.get("issues")
    if "argument" in details:
        return None
    if isinstance(issues, list) and issues and isinstance(issues[0], dict):
        return str(issues[0].get("path", ""))
    if error.code == "VALIDATION_ERROR":
        return next((_json_pointer([name]) for name in args if name not in command.open_names), None)
    if error.code == "SANDBOX_ESCAPE":
        args = _call_complete(command, command.input.read_model(args))
        places = command.input.locate(args, "path") or [()]
        left: Any = iter(places)
        try:
            engine._resolve_paths(call, args, left)
        except Error:
            return _json_pointer(places[max(0, len(places) - 1 - sum(1 for _ in left))]) or None
    return None


# From text to steps


def _plan_read(text: str | bytes, *, thinking: str = "closed") -> object:
    """Return the object that a model's answer is, read strictly. Linear; nothing is repaired or searched for. Pure.

    thinking: "closed" where the model writes its think blocks whole, "prefilled" where its prompt opened one, so that
    the answer begins inside it. Raises: PLAN_INVALID, which holds nothing of the text.

    >>> _plan_read('<think>what for?</think> {"plan": []}')
    {'plan': []}
    """
    return _plan_parse(*_plan_cut(text, thinking))


def _plan_parse(text: str, offset: int | None) -> Any:
    """Return the value of JSON text; offset: of its first character in what was given, None where that was no text."""
    try:
        return _json_loads(text, max_bytes=PLAN_BYTES, max_depth=PLAN_DEPTH_LEVELS)
    except _JsonFault as fault:
        fault.position = None if fault.position is None or offset is None else fault.position + offset
        raise _plan_refusal(f"it has {fault}" if str(fault)[:1] not in "NI-" else f"it holds {fault}") from None


def _plan_cut(text: Any, thinking: str) -> tuple[str, int]:
    """Return what must be the one object in a model's answer, and its place. Raises: PLAN_INVALID. Linear."""
    if not isinstance(text, (str, bytes)):
        raise _plan_refusal(f"it is {_reg_show(text)}, not text")
    if len(text) > PLAN_TEXT_CHARACTERS:
        raise _plan_refusal(f"it has more than {PLAN_TEXT_CHARACTERS:,} characters")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise _plan_refusal(f"it is not UTF-8 at byte {fault.start + 1}") from None
    at = _plan_skip(text, 1 if text.startswith("\ufeff") else 0)
    inside = thinking == "prefilled"
    while inside or text.startswith("<think>", at):
        at += 0 if inside else len("<think>")
        end = text.find("</think>", at)
        if end < 0:
            raise _plan_refusal("its think block is not closed, so that all of it is thinking")
        if text.find("<think>", at, end) >= 0:
            raise _plan_refusal("it has a think block inside a think block")
        at, inside = _plan_skip(text, end + len("</think>")), False
    end = len(text.rstrip(PLAN_BLANKS))
    if text.startswith("```", at):
        at += len("```json") if text[at + 3 : at + 7].lower() == "json" else len("```")
        if not text.endswith("```", at, end):
            raise _plan_refusal("its code fence is not closed, or text follows it")
        at, end = _plan_skip(text, at), end - len("```")
    if at >= end:
        raise _plan_refusal("it holds no object")
    if text.startswith("</think>", at):
        raise _plan_refusal('it has a </think> that closes nothing (where the prompt opens the block, '
                            'the planner says thinking="prefilled")')
    if text[at] != "{":
        raise _plan_refusal(f"it has something else before the object, at character {at + 1}")
    return text[at:end], at


def _plan_skip(text: str, at: int) -> int:
    """Return the place of the next character that is no white space."""
    while text[at : at + 1] in PLAN_BLANKS and at < len(text):
        at += 1
    return at


def _plan_write(envelope: Any) -> str:
    """Return an envelope that was given as an object as text, so that it passes the same door. Raises: PLAN_INVALID."""
    if not _plan_is_small(envelope, PLAN_BYTES, PLAN_BYTES):
        raise _plan_refusal(f"it has more than {PLAN_BYTES:,} bytes")
    try:
        return _json_dumps(envelope)
    except _JsonFault as fault:
        raise _plan_refusal(f"it holds {fault}") from None


def _plan_is_small(value: Any, nodes: int, size: int) -> bool:
    """Tell whether a value has at most so many values in it, and bytes of text; looks at no more than those. Pure."""
    todo = [value]
    while todo:
        item = todo.pop()
        nodes -= 1
        if isinstance(item, str):
            size -= len(item) if item.isascii() or len(item) > size else len(item.encode("utf-8", "replace"))
        elif isinstance(item, (list, tuple, dict)):
            if len(item) > nodes:
                return False
            todo.extend(item.values() if isinstance(item, dict) else item)
            for key in item if isinstance(item, dict) else ():
                size -= len(key) if isinstance(key, str) else 0
        elif isinstance(item, int):
            size -= item.bit_length() * 3 // 10
        if nodes < 0 or size < 0:
            return False
    return True


def _plan_envelope(value: Any) -> list[dict[str, Any]]:
    """Return the steps of an envelope, each with tool, args and output of the right types. Raises: PLAN_INVALID."""
    if type(value) is not dict or value.keys() != PLAN_ROOT_KEYS:
        raise _plan_refusal('it needs the key "plan" and has no other')
    steps = value["plan"]
    if type(steps) is not list:
        raise _plan_refusal(f'its "plan" is of type {_json_kind(steps)} and must be an array of steps')
    if len(steps) > PLAN_STEPS:
        raise _plan_refusal(f"it has {len(steps):,} steps, and a plan has at most {PLAN_STEPS}")
    for index, step in enumerate(steps):
        if type(step) is dict and type(step.get("tool")) is str and type(step.get("args")) is dict and (
                len(step) == len(PLAN_REQUIRED)):
            continue
        fault = _plan_step_fault(step)
        if fault:
            raise _plan_at(Error("PLAN_INVALID", fault), index)
    return steps


def _plan_step_fault(step: Any) -> str:
    """Return what is wrong with a step as such, "" where nothing is; holds nothing of it. Pure."""
    if type(step) is not dict:
        return f"a step is an object with tool, args and output, not of type {_json_kind(step)}"
    if not step.keys() <= PLAN_KEYS:
        return "a step has no key but tool, args and output; arguments stand in args"
    if type(step.get("tool")) is not str:
        return "a step needs a tool, the name of one as text"
    if type(step.get("args")) is not dict:
        if "args" not in step:
            return "a step needs args, an object, {} for no arguments"
        if type(step["args"]) is str:
            return "args is text; give the arguments as a JSON object, not as JSON inside a string"
        return f"args is of type {_json_kind(step['args'])} and must be an object"
    if "output" in step:
        output = step["output"]
        named = type(output) is str and output[:1] == "$" and _plan_is_name(output[1:])
        if not named or len(output) > REG_NAME_CHARACTERS:
            return ('output must be text, "$" and a name of letters, digits and _ that begins with no digit, of at '
                    f"most {REG_NAME_CHARACTERS} characters; leave it out where no later step needs the result")
    return ""


# References


def _plan_is_name(text: str) -> bool:
    """Tell whether text can name an output: ``[A-Za-z_][A-Za-z0-9_]*``. Pure."""
    return text[:1] in PLAN_NAME_FIRST and PLAN_NAME_LATER.issuperset(text)


def _plan_reference(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (name, path) of text that is wholly a reference, None for other text. Pure.

    The parts of a path are letters and digits of any script, _ and -.

    >>> _plan_reference("$found.items.0"), _plan_reference("$5"), _plan_reference("$found!")
    (('found', ('items', '0')), None, None)
    """
    name, *path = text[1:].split(".")
    if text[:1] != "$" or not _plan_is_name(name):
        return None
    whole = all(part.replace("_", "a").replace("-", "a").isalnum() for part in path)
    return (name, tuple(path)) if whole else None


def _plan_bound_in(text: str, names: Collection[str]) -> str | None:
    """Return the first of these names that text holds behind a $, None where it holds none. Linear, pure."""
    for piece in text.split("$")[1:]:
        size = 0
        while size < len(piece) and piece[size] in PLAN_NAME_LATER:
            size += 1
        if piece[:size] in names:
            return piece[:size]
    return None


def _plan_scan(holder: Any, place: tuple[str | int, ...], names: Collection[str], refs: list[Any]) -> None:
    """Read $$ in the values of an array or object, in place, and add the references among them to refs.

    names: of all outputs. Raises: PLAN_INVALID, to be completed, for text that only looks like a reference.
    """
    named = type(holder) is dict
    key: Any
    for key, value in holder.items() if named else enumerate(holder):
        if named and "$" in key:
            _plan_check_text(key, (*place, key), names)
        if type(value) is str:
            if "$" not in value:
                continue
            found = _plan_reference(value)
            if found is not None:
                refs.append(((*place, key), value, *found))
            elif value.startswith("$$"):
                holder[key] = value[1:]
            else:
                _plan_check_text(value, (*place, key), names)
        elif type(value) in JSON_CONTAINER_TYPES:
            _plan_scan(value, (*place, key), names, refs)


def _plan_check_text(text: str, place: Sequence[str | int], names: Collection[str]) -> None:
    """Refuse text that holds the $name of an output: it would not be replaced there. Raises: PLAN_INVALID."""
    name = _plan_bound_in(text, names)
    if name is None:
        return
    if text.startswith("$" + name):
        remedy = f"write ${name} or ${name}.key alone for the result, $$ for text that begins with $"
    else:
        remedy = f"give ${name} as a whole argument, or rename the output if the text means something else"
    raise _plan_fault("PLAN_INVALID", f"the text holds ${name}, which is replaced only where it stands alone; {remedy}",
                      place)


def _plan_look_up(ref: Any, results: Mapping[str, Any]) -> Any:
    """Return the part of a result that a reference names. Raises: PLAN_INVALID, to be completed."""
    place, text, name, path = ref
    value: Any = results[name]
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _plan_index(part) < len(value):
            value = value[_plan_index(part)]
        else:
            raise _plan_fault("PLAN_INVALID", f"{_json_show(text)} leads nowhere: the result is of type "
                              f"{_json_kind(results[name])} and has no {_json_show(part)} there", place)
    return value


def _plan_index(part: str) -> int:
    """Return the place in an array that a part of a path means; for any other text one that no array has. Pure."""
    number = part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")
    return int(part) if number and len(part) <= PLAN_INDEX_DIGITS else sys.maxsize


def _plan_produced(schema: Any, root: Any, path: Sequence[str]) -> Any:
    """Return the schema of a part of a result, False where no result can have such a part. Pure."""
    for part in path:
        index, options = _plan_index(part), []
        for leaf in _types_leaves(schema, root):
            kinds = _types_leaf_kinds(leaf)
            if "object" in kinds:
                other = True if "patternProperties" in leaf else leaf.get("additionalProperties", True)
                options.append(leaf.get("properties", {}).get(part, other))
            if "array" in kinds and index < leaf.get("maxItems", sys.maxsize):
                first, other = leaf.get("prefixItems", ()), leaf.get("items", True)
                options.append(first[index] if index < len(first) else True if type(other) is list else other)
        if True in options:
            return {}
        schema = next(iter(options), False) if len(options) < 2 else _types_one_of(
            [option for option in options if option is not False] or [False])
        if schema is False:
            return False
    return schema


# Checking


def _plan_check(engine: Engine, envelope: Any) -> Plan:
    """Return the checked plan of a model's answer, or of an envelope given as an object.

    Calls nothing of the program's but hooks.before_call; reads the file system for paths. Raises: PLAN_INVALID,
    NOT_FOUND, VALIDATION_ERROR, SANDBOX_ESCAPE, what before_call refuses with; details say which "step" and, as a JSON
    pointer, which "argument".
    """
    if isinstance(envelope, (str, bytes)):
        text, offset = _plan_cut(envelope, "closed")
        given = _plan_envelope(_plan_parse(text, offset))
    else:
        text = _plan_write(envelope)
        given = _plan_envelope(_plan_parse(text, None))
    outputs: dict[str, int] = {}
    for index, step in enumerate(given):
        if "output" in step:
            name = step["output"][1:]
            if name in outputs:
                fault = f"the output ${name} is already that of plan[{outputs[name]}]; give it another name"
                raise _plan_at(Error("PLAN_INVALID", fault), index)
            outputs[name] = index
    refers = "$" in text or "\\u" in text
    made: list[_PlanStep] = []
    for index, step in enumerate(given):
        made.append(_plan_check_step(engine, index, step, outputs if refers else None, made))
    return Plan(engine, made)


def _plan_check_step(
    engine: Engine, index: int, given: dict[str, Any], outputs: Mapping[str, int] | None, before: Sequence[_PlanStep]
) -> _PlanStep:
    """Return a checked step. outputs: name -> step, None where nothing can be a reference. before: earlier steps."""
    command = _plan_find(engine, given["tool"], index)
    args: Any = given["args"]
    refs: list[Any] = []
    call = Call(command, args, reading="MODEL", surface="agent")
    try:
        if outputs is not None:
            _plan_scan(args, (), outputs, refs)
        output = given.get("output", "$")[1:] or None
        step = _PlanStep(command, args, output, tuple(refs), None)
        if refs:
            _plan_judge(engine, step, [_plan_promise(index, ref, outputs or {}, before) for ref in refs])
        else:
            step.admitted = _plan_admit(engine, call)
    except RegistrationError:
        raise
    except (Exception, SystemExit) as error:
        refusal = _call_refusal(command, error)
        raise _plan_at(refusal, index, command.name, _plan_argument(engine, call, refusal)) from refusal.__cause__
    return step


def _plan_find(engine: Engine, name: str, index: int) -> Command:
    """Return the command of a step. Raises: NOT_FOUND with the nearest names, or with those that there are."""
    try:
        return engine.find(name, "agent")
    except RegistrationError:
        raise
    except Error as error:
        if error.details is None:
            names = [command.name for command in engine.registry.commands("agent") if not command.hidden]
            more = ["..."] * (len(names) > PLAN_TOOLS_SHOWN)
            error.hint = "the tools are " + (", ".join(names[:PLAN_TOOLS_SHOWN] + more) or "none")
        raise _plan_at(error, index) from None


def _plan_admit(engine: Engine, call: Call) -> Admitted:
    """Admit a call that a model proposed; secrets are not its to give. Raises: what Engine.admit does."""
    shape = call.command.input
    if shape.has_role("secret"):
        _plan_check_secrets(call.command, shape.read_model(call.args))
    return engine.admit(call)


def _plan_check_secrets(command: Command, args: Any) -> None:
    """Refuse a secret in the arguments. Raises: VALIDATION_ERROR, to be completed."""
    for place in command.input.locate(args, "secret"):
        raise _plan_fault("VALIDATION_ERROR", f"{_json_show(place[-1])} is not a field of {command.name}", place)


def _plan_promise(index: int, ref: Any, outputs: Mapping[str, int], before: Sequence[_PlanStep]) -> tuple[Any, Any]:
    """Return (schema, root) of what a reference will stand for, as far as its step says. Raises: PLAN_INVALID."""
    place, text, name, path = ref
    source = outputs.get(name)
    if source is None:
        raise _plan_fault("PLAN_INVALID", f"no step has the output {_json_show('$' + name)}; write $$ for text that "
                          "begins with $", place)
    if source >= index:
        which = "this very step" if source == index else f"the later plan[{source}]"
        raise _plan_fault("PLAN_INVALID", f"${name} is the output of {which}; refer to earlier steps", place)
    shape = before[source].command.output
    if shape is None:
        return {}, {}
    schema = _plan_produced(shape.schema, shape.schema, path)
    if schema is False:
        raise _plan_fault("PLAN_INVALID", f"{_json_show(text)} leads nowhere: no result of {before[source].tool} "
                          "has such a part", place)
    return schema, shape.schema


def _plan_judge(engine: Engine, step: _PlanStep, promises: Sequence[tuple[Any, Any]]) -> None:
    """Judge a step with references as far as that can be done without the results; the rest is for its admission.

    What hooks.before_call would make of the arguments nobody can know yet: where there is one, all is left for later.
    Raises: VALIDATION_ERROR, SANDBOX_ESCAPE.
    """
    if engine.hooks.before_call is not None:
        return
    command, shape, args = step.command, step.command.input, step.args
    _call_check_declared(command, args)
    for (place, text, _, _), (schema, root) in zip(step.refs, promises):
        wanted = _plan_kinds(_plan_schema_at(shape.schema, args, place), shape.schema)
        kinds = _plan_kinds(schema, root)
        if kinds and wanted and "string" not in kinds and kinds.isdisjoint(wanted):
            raise _plan_fault("VALIDATION_ERROR", f"{_json_show(text)} is of type {' or '.join(sorted(kinds))}, and "
                              f"{_json_show(_json_pointer(place))} takes {' or '.join(sorted(wanted))}", place)
        _call_put(args, place, next((PLAN_SAMPLES[kind] for kind in PLAN_SAMPLES if kind in wanted), None))
    if shape.has_role("secret"):
        _plan_check_secrets(command, shape.read_model(args))
    args = _call_complete(command, args)
    issues = shape.issues(args)
    if issues:
        args = shape.read_model(args)  # what fits as it is holds no text to be read
        issues = shape.issues(args)
    places = shape.locate(args, "path") if shape.has_role("path") else []
    if not issues and not places:
        return
    around = {place[:size] for place, *_ in step.refs for size in range(len(place) + 1)}
    certain = [issue for issue in issues  # a name that is not declared is wrong whatever stands under it
               if (issue.location not in around or issue.keyword == "additionalProperties")
               and _plan_schema_at(shape.schema, args, issue.location) is not None]
    if certain:
        raise _schema_error(certain)
    if places:  # without a sandbox none is taken, whatever it will be
        sure = [place for place in places
                if place not in around and _plan_schema_at(shape.schema, args, place) is not None]
        engine._resolve_paths(Call(command, args, surface="agent"), args, sure)


def _plan_kinds(schema: Any, root: Any) -> frozenset[str]:
    """Return the kinds of value that a schema admits; None and {} admit all. Pure."""
    return _types_kinds(schema, root) if schema or schema is False else TYPES_KINDS


def _plan_schema_at(root: Any, value: Any, place: Sequence[Any]) -> Any:
    """Return the schema of a place in arguments, None where that depends on more than the types of its owners. Pure."""
    schema = root
    for depth, key in enumerate(place):
        value = value if depth == 0 else _types_at(value, place[depth - 1 : depth])
        kind = "object" if type(value) is dict else "array" if type(value) is list else ""
        leaves = [leaf for leaf in _types_leaves(schema, root) if kind in _types_leaf_kinds(leaf)]
        if len(leaves) != 1 or not leaves[0].keys() <= PLAN_PLAIN_WORDS:
            return None
        if kind == "array":
            schema = _types_element(leaves[0], root, key)
        else:
            found = leaves[0].get("properties", {}).get(key)
            schema = _types_member(leaves[0], key, root) if found is None else found
    return schema


# Execution


async def _plan_execute(
    plan: Plan, *, confirmed: Any = False, dry_run: Any = False, cancel: Cancel | None = None, live: Any = False
) -> PlanResult:
    """Run a checked plan, step by step, and return how that ended; refusals and failures are in the result.

    confirmed: True, the digest of this plan, or a function of a step that returns True; it may be a coroutine function.
    A destructive step with references is covered by the function alone. dry_run: call nothing but what is registered
    with previews=True, and tell what would be done; it wins over confirmed. KeyboardInterrupt and the like go on.
    """
    result = PlanResult(plan)
    engine = plan._engine
    error = _plan_request_error(plan, confirmed, dry_run)
    if error is not None:
        result.error, result.exit_code = error, engine.exit_code(error.code)
    elif dry_run:
        await _plan_preview(result, confirmed, cancel, live)
    elif await _plan_approve(result, confirmed, live):
        results: dict[str, Any] = {}
        for index in range(len(plan)):
            if not await _plan_run_step(result, index, results, confirmed, cancel, live):
                break
    return result


def _plan_request_error(plan: Plan, confirmed: Any, dry_run: Any) -> Error | None:
    """Return why a request to execute a plan is refused as such."""
    if dry_run is not True and dry_run is not False:
        return Error("BAD_REQUEST", f"dry_run must be True or False, not {_reg_show(dry_run)}")
    text = type(confirmed) is str  # a subclass may compare as it likes
    digest = text and len(confirmed) == PLAN_DIGEST_LENGTH and PLAN_DIGEST_DIGITS.issuperset(confirmed)
    if not (confirmed is True or confirmed is False or digest or callable(confirmed) and not text):
        return Error("BAD_REQUEST", "confirmed must be True, False, the digest of the plan or a function, "
                     f"not {_reg_show(confirmed)}")
    if not len(plan):
        return Error("NOT_FOUND", "the plan is empty: no command fits what was asked")
    if text and not dry_run and confirmed != plan.digest:
        return Error("CONFIRMATION_REQUIRED", "the approval is for another plan than this one")
    return None


def _plan_consent(plan: Plan, index: int, confirmed: Any) -> Error | None:
    """Return why an approval that is no function does not cover a step; None where it does, or need not. Pure."""
    step = plan._steps[index]
    if isinstance(confirmed, str) and confirmed != plan.digest:
        return Error("CONFIRMATION_REQUIRED", "the approval is for another plan than this one")
    if not step.command.destructive or callable(confirmed):
        return None
    if confirmed is False:
        return Error("CONFIRMATION_REQUIRED", "the step is destructive and needs a confirmation")
    if step.refs:
        return Error("CONFIRMATION_REQUIRED", f"the step is destructive and takes {_json_show(step.refs[0][1])} from "
                     "an earlier step, so it must be confirmed when its arguments are known",
                     hint="execute the rest of the plan with its own digest")
    return None


async def _plan_preview(result: PlanResult, confirmed: Any, cancel: Cancel | None, live: Any) -> None:
    """Tell of every step what would become of it; call those that preview."""
    plan: Any = result.plan
    for index, step in enumerate(plan._steps):
        refusal = _plan_consent(plan, index, confirmed)
        would, reason = "run", None
        if refusal is not None:
            would, reason = "refuse", refusal.message
        elif step.command.destructive and callable(confirmed):
            would, reason = "ask", "the step is destructive"
        elif step.refs:
            reason = f"it is checked again when {_json_show(step.refs[0][1])} is known"
        outcome = None
        if step.admitted is not None:
            outcome = await _plan_call(plan._engine, step.admitted, False, True, cancel, live)
            if outcome.ok and not step.command.previews:
                outcome = None
        result._rows.append((index, step, step.admitted, outcome, would, reason))
        if outcome is not None and not outcome.ok:
            _plan_fail(result, index, outcome)
            break


async def _plan_approve(result: PlanResult, confirmed: Any, live: Any) -> bool:
    """Have all destructive steps without references approved, before anything runs; False where one is not."""
    plan: Any = result.plan
    for index, step in enumerate(plan._steps):
        if step.refs or not step.command.destructive:
            continue
        refusal = _plan_consent(plan, index, confirmed)
        if refusal is None and callable(confirmed):
            refusal = await _plan_ask(plan._engine, step, step.admitted, confirmed, live)
        if refusal is not None:
            await _plan_refuse(result, index, step.admitted, refusal, live)
            result.rest = plan
            return False
    return True


async def _plan_run_step(
    result: PlanResult, index: int, results: dict[str, Any], confirmed: Any, cancel: Cancel | None, live: Any
) -> bool:
    """Run one step and keep its outcome; False where the plan stops here."""
    plan: Any = result.plan
    engine, step = plan._engine, plan._steps[index]
    admitted: Any = step.admitted
    if admitted is None:
        call = Call(step.command, _json_copy(step.args), reading="MODEL", surface="agent", cancel=cancel)
        try:
            _plan_fill(call.args, step.refs, results)
            admitted = _plan_admit(engine, call)
        except (Exception, SystemExit) as error:
            outcome = await engine._end(call, _plan_given(step), engine._failed(step.command, error), error, live)
            result._rows.append((index, step, None, outcome, "", None))
            _plan_fail(result, index, outcome, _plan_argument(engine, call, outcome.error))
            return False
        refusal = _plan_consent(plan, index, confirmed)
        if refusal is None and step.command.destructive:
            refusal = await _plan_ask(engine, step, admitted, confirmed, live)
        if refusal is not None:
            await _plan_refuse(result, index, admitted, refusal, live)
            if refusal.code == "CONFIRMATION_REQUIRED":
                _plan_set_rest(result, index, admitted, results)
            return False
    outcome = await _plan_call(engine, admitted, step.command.destructive, False, cancel, live)
    result._rows.append((index, step, admitted, outcome, "", None))
    if not outcome.ok:
        _plan_fail(result, index, outcome)
        return False
    if step.output is not None:
        results[step.output] = outcome.data
    return True


async def _plan_call(
    engine: Engine, admitted: Admitted, approved: bool, dry_run: bool, cancel: Cancel | None, live: Any
) -> Outcome:
    """Run a checked call, if its paths still are what they were, on typed values of its own."""
    args, command = admitted.args, admitted.call.command
    call = Call(command, args, surface="agent", dry_run=dry_run, cancel=cancel)
    try:
        _plan_check_paths(engine, admitted)
        again = Admitted(call, args, command.input.to_python(args), admitted.paths, engine)
    except (Exception, SystemExit) as error:
        return await engine._end(call, args, engine._failed(command, error), error, live)
    return await engine.run(again, Approval("all" if approved else "none"), live=live)


def _plan_check_paths(engine: Engine, admitted: Admitted) -> None:
    """Refuse a checked path that leads elsewhere by now. Reads the file system. Raises: SANDBOX_ESCAPE."""
    sandbox = engine.sandbox
    for place in admitted.paths if isinstance(sandbox, Sandbox) else ():
        path = _call_at(admitted.args, place)
        moved = Error("SANDBOX_ESCAPE", "a link was put into the path since the plan was checked; check it again")
        try:
            if sandbox.resolve(path, sandbox.root) == path:
                continue
        except Error as error:
            moved = error
        moved.details = {"argument": _json_pointer(place)}
        raise moved


async def _plan_ask(engine: Engine, step: _PlanStep, admitted: Any, confirmed: Any, live: Any) -> Error | None:
    """Ask the function that approves; return why the step is not approved, None where it is. Only True approves."""
    try:
        answer = await _call_settle(confirmed(_plan_public(engine, step, admitted)), live)
    except Error as refusal:
        return refusal
    except (Exception, SystemExit) as failure:
        error = Error("INTERNAL_SERVER_ERROR", "the function given as confirmed failed, so the step is not confirmed")
        error.__cause__ = failure
        return error
    return None if answer is True else Error("CONFIRMATION_REQUIRED", "the step is destructive and was not confirmed")


async def _plan_refuse(result: PlanResult, index: int, admitted: Any, refusal: Error, live: Any) -> None:
    """End the result with a step that was not approved; the observers see it."""
    plan: Any = result.plan
    step, engine = plan._steps[index], plan._engine
    call = Call(step.command, admitted.args, surface="agent")
    outcome = await engine._end(call, admitted.args, engine._failed(step.command, refusal), refusal, live)
    result._rows.append((index, step, admitted, outcome, "", None))
    _plan_fail(result, index, outcome)


def _plan_fail(result: PlanResult, index: int, outcome: Outcome, argument: str | None = None) -> None:
    """Take the error and exit code of a result from the step at which it stopped."""
    plan: Any = result.plan
    error: Any = outcome.error
    result.error = _plan_at(error, index, plan._steps[index].tool, argument, outcome.entered)
    result.exit_code = outcome.exit_code


def _plan_fill(args: Any, refs: Sequence[Any], results: Mapping[str, Any]) -> None:
    """Put results in the places of references. Raises: PLAN_INVALID, VALIDATION_ERROR, to be completed."""
    for ref in refs:
        _call_put(args, ref[0], _plan_look_up(ref, results))
    if not _plan_is_small(args, PLAN_NODES, PLAN_ARGS_BYTES):
        raise _plan_fault("VALIDATION_ERROR", "with results in their places the arguments have more than "
                          f"{PLAN_NODES:,} values or {PLAN_ARGS_BYTES:,} bytes; refer to a part of the result",
                          refs[0][0])


def _plan_set_rest(result: PlanResult, index: int, admitted: Admitted, results: Mapping[str, Any]) -> None:
    """Set the rest of a plan: from a step on, with the results of finished steps in the places of references.

    A later step that these results make unfit ends the result in its place: that plan could not go on.
    """
    plan: Any = result.plan
    engine, rest = plan._engine, []
    for later, step in enumerate(plan._steps[index:], index):
        known = [ref for ref in step.refs if ref[2] in results]
        made = _PlanStep(step.command, step.args, step.output, step.refs, step.admitted)
        rest.append(made)
        if not known:
            continue
        made.args, made.refs = _json_copy(step.args), tuple(ref for ref in step.refs if ref not in known)
        call = Call(step.command, made.args, reading="MODEL", surface="agent")
        try:
            _plan_fill(made.args, known, results)
            made.args = call.args = _json_copy(made.args)
            if later == index:
                made.admitted = admitted
            elif not made.refs:
                made.admitted = _plan_admit(engine, call)
        except (Exception, SystemExit) as error:
            _plan_fail(result, later, engine._failed(step.command, error), _plan_argument(
                engine, call, _call_refusal(step.command, error)))
            return
    result.rest = Plan(engine, rest)
# endregion PLAN


# region WORDS -- sentences of English: tokens, numbers, dates, times, paths
# needs: LIMITS FORMAT
# What a sentence says whatever the program is about. A token is a word, a mark or a quoted text, and knows where it
# stands, so that a person's own spelling is never lost. A span is what has a type: a number in digits or as a word, a
# date, a time, an address of e-mail, a path. Relative dates count from a day that the caller names. All of it is linear
# in the length of the sentence, which is bounded, and takes any text without a fault.

WORDS_NUMBERS = dict(zip(
    ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
     "eighteen nineteen twenty thirty forty fifty sixty").split(), [*range(20), 20, 30, 40, 50, 60]))
WORDS_MONTHS = dict(zip(
    ("january february march april may june july august september october november december "
     "jan feb mar apr may jun jul aug sep oct nov dec").split(), [*range(1, 13)] * 2))
WORDS_WEEKDAYS = dict(zip(
    "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun".split(), [*range(7)] * 2))
WORDS_DAYS = {"day": 1, "days": 1, "week": 7, "weeks": 7}
WORDS_RELATIVE = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
WORDS_CLOCK = {"noon": "12:00", "midnight": "00:00"}
WORDS_PHASES = {"in the morning": "am", "in the afternoon": "pm", "in the evening": "pm", "at night": "pm"}
WORDS_UNITS = frozenset(("px", "s", "sec", "min", "mins", "h", "hr", "hrs", "d"))  # that may stand close to a number
WORDS_MARKS = ".,;:!?()[]{}"
WORDS_QUOTES = {'"': '"', "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}
#: Words of very general acts: each row stands for one act, so that "drop" finds a command that says "delete".
WORDS_ACTS = tuple((
    "show list display check open get print view see give tell fetch which details detail info information describe "
    "read inspect examine report pull bring browse/delete remove drop erase discard rid untag unset wipe trash "
    "throw clear bin scrap destroy eliminate flush prune cull purge toss ditch shred strip unlink detach "
    "forget/create add make new put insert generate build stick append record register write log track enter queue "
    "schedule capture include attach apply affix place/draw paint doodle design craft compose portray imagine "
    "sketch illustrate render depict produce generate create visualise visualize/change edit update modify alter "
    "set move reschedule switch adjust correct postpone bump shift push amend/rename retitle name call reword "
    "title/finish complete done close finished completed resolve sort tick wrap handle accomplish settle/remember "
    "remind note jot memo/find search look lookup filter match seek locate contain/count many number total tally "
    "how/status state progress/progress finished done ready far along complete going coming doing/export backup "
    "back dump save copy archive snapshot/import restore load/convert translate transform express/stats statistics "
    "summary summarise summarize overview breakdown figures/until till/difference gap interval duration span "
    "elapsed between apart separate pass last long since old age left remain/tag untag label category categorise "
    "categorize sticker belong flag carry"
).split("/"))
#: The same for things and for what is said of them.
WORDS_THINGS = tuple((
    "all everything/picture image photo photograph illustration artwork variation version variant graphic "
    "png/folder directory/task todo item entry chore to-do/priority importance urgency/due deadline/hour clock/date "
    "calendar/zone timezone tz/size dimension resolution big large wide tall square across/pixel px/open left "
    "outstanding pending unfinished undone incomplete active unresolved/overdue late/done closed finished completed "
    "ticked resolved/human readable words spelled prose/title wording heading caption/second sec secs/minute min "
    "mins/hour hr hrs/normal medium average ordinary/current now moment present"
).split("/"))
#: A verb and its particle: together they are another verb.
WORDS_PHRASAL = (
    "finish: tick off, cross off, check off, strike off, close out, take care, took care, knock out, knock off, "
    "sort out/remove: take off, get rid, throw out, throw away, clear away, clear out, wipe out, peel off, strip "
    "off, blow away, clean up, clean out/add: write down, jot down, put down, note down/find: look up/show: pull "
    "up, bring up, look at/generate: kick off, run off, whip up, conjure up, come up, dream up, cook up, mock up, "
    "put together/list: look through/remember: don't forget, not forget/export: back up"
)
#: Words that may stand before an order, and those of them that may stand right before its verb.
WORDS_POLITE = frozenset((
    "please kindly can could would will you i i'd want need like to go ahead and now then just hey hi hello ok okay "
    "let let's us me lets alright right so also").split())
WORDS_POLITE_LAST = frozenset(
    "please kindly you to and now then just ahead ok okay let's lets us also hello hi hey".split())
#: Words without a meaning of their own. Words that turn a meaning (not, or, but, after, if, why) are never here.
WORDS_IDLE = frozenset((
    "a an the this these that those it its i i'd i'm i've me my mine we us our is are was were be been do does did "
    "has had having got yet already still there here some any please kindly hey hi ok okay so well just also too "
    "thanks thank can could would will let let's lets 's want need like of to in on at with as by for from into "
    "onto and & which what what's whats all every everything each entire whole number no. # right currently really "
    "how only exactly ones whatever absolutely simply you your he she they them him her his their such both up over "
    "there's that's he's she's mind now moment something look check current same anything stuff things permanently "
    "forever wondering kind favor favour great love nice able possible 'd 'll 'm 're very own quick quickly away "
    "immediately straight completely entirely altogether anymore ahead"
).split())


def _words_table(rows: str) -> dict[str, str]:
    """Return key -> value for rows of a value and its keys. Pure.

    >>> _words_table("remove: throw away, throw out/find: look up")
    {'throw away': 'remove', 'throw out': 'remove', 'look up': 'find'}
    """
    return {key: value for row in rows.split("/") for value, _, keys in [row.partition(": ")]
            for key in keys.split(", ")}


def _words_stem(word: str) -> str:
    """Return a word without its commonest endings, not always a word. Pure.

    >>> [_words_stem(word) for word in ("tagged", "Tasks", "pictures", "completed", "categories", "address")]
    ['tag', 'task', 'pictur', 'complet', 'categori', 'address']
    """
    word = word.lower()
    if word == "stats":
        return word  # no state
    for end in ("ing", "ed") if len(word) > 4 else ():
        if word.endswith(end) and any(vowel in word[: -len(end)] for vowel in "aeiouy"):
            word = word[: -len(end)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            elif len(word) == 3 and word[1] in "aiou" and word[0] not in "aeiou" and word[2] not in "aeiouwxy":
                word += "e"  # named
            break
    else:
        if len(word) > 3 and word[-1] == "s" and word[-2] not in "su":
            word = word[:-1]
            if word.endswith("ie") and len(word) > 4:
                word = word[:-1]
    if len(word) > 4 and word[-1] == "e":  # "note" is not "not"
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word[-1] == "y" else word


def _words_of(text: str) -> list[str]:
    """Return the words of a name or a help text in lower case. Pure."""
    spaced = "".join(mark if mark.isalnum() or mark == "'" else " " for mark in text)
    return [word.strip("'") for word in spaced.lower().split() if word.strip("'")]


def _words_tokens(text: str) -> list[Any]:
    """Return the tokens of a sentence: words, marks and quoted texts; [] for what is no sentence. Pure; linear."""
    from types import SimpleNamespace

    if not isinstance(text, str) or len(text) > WORDS_UTTERANCE_CHARACTERS:
        return []
    if any(mark < " " and mark not in "\t\n\r" or "\ud800" <= mark <= "\udfff" or mark == "\x7f" for mark in text):
        return []
    tokens: list[Any] = []

    def add(start: int, end: int, quoted: str | None = None) -> None:
        shown = text[start:end] if quoted is None else quoted
        low = shown.lower().replace("\u2019", "'") if quoted is None else ""
        tokens.append(SimpleNamespace(text=shown, low=low, stem=_words_stem(low), start=start, end=end,
                                      quoted=quoted is not None, mark=quoted is None and shown in WORDS_MARKS,
                                      whole=text))

    at = 0
    while at < len(text) and len(tokens) <= WORDS_TOKENS:
        if text[at].isspace():
            at += 1
            continue
        close = _words_quote_end(text, at)
        if close:
            add(at, close + 1, text[at + 1 : close])
            at = close + 1
            continue
        end = at + 1
        if text[at] not in ",;!?()[]{}":
            while end < len(text) and not text[end].isspace() and text[end] not in ',;!?()[]{}"\u201c' and (
                    text[end - 1 : end + 1] != "='"):
                end += 1
            _words_add_chunk(text, at, end, add)
        else:
            add(at, end)
        at = end
    return tokens if len(tokens) <= WORDS_TOKENS else []


def _words_quote_end(text: str, at: int) -> int:
    """Return where a quoted text that begins at a place ends, 0 where none begins. Pure."""
    mark = text[at]
    if mark == "'":
        end = text.find("'", at + 1)
        while end > 0 and end + 1 < len(text) and text[end + 1].isalnum():
            end = text.find("'", end + 1)  # an apostrophe inside a word
    else:
        end = text.find(WORDS_QUOTES[mark], at + 1) if mark in WORDS_QUOTES else 0
    return end if end > at + 1 and text[at + 1 : end].strip() else 0


def _words_add_chunk(text: str, start: int, end: int, add: Callable[..., None]) -> None:
    """Add a run without blanks as tokens: key= and value, a word and its 's, the marks at its end."""
    stop = end
    while stop > start + 1 and text[stop - 1] in ".:" :
        stop -= 1
    chunk = text[start:stop]
    key, equals, value = chunk.partition("=")
    if equals and key and key.lstrip("-").replace("-", "_").isidentifier() and key[0] != "/":
        add(start, start + len(key))
        add(start + len(key), start + len(key) + 1)
        if value:
            add(start + len(key) + 1, stop)
    elif chunk[-2:] in ("'s", "\u2019s") and chunk[:-2].lower() not in ("let", ""):
        add(start, stop - 2)
        add(stop - 2, stop)
    elif chunk[:1] == "#" and chunk[1:]:
        add(start, start + 1)
        add(start + 1, stop)
    elif chunk[:1].isdigit() and chunk.lstrip("0123456789") in WORDS_UNITS:
        cut = stop - len(chunk.lstrip("0123456789"))
        add(start, cut)
        add(cut, stop)
    else:
        add(start, stop)
    for place in range(stop, end):
        add(place, place + 1)


def _words_spans(tokens: Sequence[Any], today: Any) -> list[Any]:
    """Return the typed parts of a sentence in order, none overlapping: kind, JSON value, first token and end. Pure."""
    from types import SimpleNamespace

    spans = []
    at = 0
    while at < len(tokens):
        found = None
        if not tokens[at].quoted and not tokens[at].mark:
            found = (_words_moment(tokens, at, today) or _words_number(tokens, at) or _words_place(tokens[at], at))
        if found is None:
            at += 1
            continue
        kind, value, end = found
        spans.append(SimpleNamespace(kind=kind, value=value, first=at, end=end))
        at = end
    return spans


def _words_low(tokens: Sequence[Any], at: int) -> str:
    """Return the word at a place in lower case, "" where there is none or a quoted text."""
    return tokens[at].low if 0 <= at < len(tokens) else ""


def _words_number(tokens: Sequence[Any], at: int) -> tuple[str, Any, int] | None:
    """Return a number written in digits or as a word."""
    low = tokens[at].low
    side, times, other = low.partition("x") if "x" in low else (low, *(_words_low(tokens, at + far) for far in (1, 2)))
    if side == other and times in ("x", "by") and side.isascii() and side.isdigit() and len(side) < 6:
        return ("int", int(side), at + 1 if "x" in low else at + 3)  # 64x64, 64 by 64
    digits = low[:-2] if low[-2:] in ("st", "nd", "rd", "th") else low
    if digits.isascii() and digits.isdigit() and len(digits) <= JSON_SHOWN_CHARACTERS:
        return ("int", int(digits), at + 1)
    if low in WORDS_NUMBERS:
        return ("int", WORDS_NUMBERS[low], at + 1)
    sign, _, rest = low.rpartition("-")
    whole, _, part = rest.partition(".")
    plain = (whole + part).isascii() and (whole or "0").isdigit() and (part or "0").isdigit() and rest not in ("", ".")
    if sign == "" and plain and low.count("-") <= 1 and len(low) <= JSON_SHOWN_CHARACTERS:
        return ("num", float(low), at + 1) if "." in low else ("int", int(low), at + 1)
    return None


def _words_place(token: Any, at: int) -> tuple[str, Any, int] | None:
    """Return an e-mail address or a path of the file system."""
    text = token.text
    name, _, host = text.partition("@")
    if name and "." in host.strip(".") and "@" not in host:
        return ("email", text, at + 1)
    if "://" in text or "*" in text or text[:2] == "--" or text.strip("/~.-") == "":
        return None
    stem, dot, ending = text.rpartition(".")
    if "/" in text or dot and stem and ending.isalnum() and len(ending) <= 5 and not ending.isdigit():
        return ("path", text, at + 1)
    return None


def _words_moment(tokens: Sequence[Any], at: int, today: Any) -> tuple[str, Any, int] | None:
    """Return a date, a time, or both; what is written in ISO 8601 stays as it is written."""
    text = tokens[at].text
    if text[10:11] in ("T", "t") and _words_iso_date(text[:10]) and _format_check("time", _words_full(text[11:])):
        return ("datetime", text, at + 1)
    day = _words_date(tokens, at, today)
    if day is None:
        clock = _words_time(tokens, at)
        return clock and ("time", *clock)
    value, end = day
    after = end + 1 if _words_low(tokens, end) in ("at", ",") else end
    clock = _words_time(tokens, after)
    if clock is not None:
        return ("datetime", f"{value}T{clock[0]}", clock[1])
    return ("date", value, end)


def _words_full(clock: str) -> str:
    """Return a time with the seconds and the offset that RFC 3339 demands. Pure."""
    marks = [place for place in map(clock.rfind, "+-Zz") if place > 0]
    cut = max(marks) if marks else len(clock)
    head, zone = clock[:cut], clock[cut:] or "Z"
    return (head + ":00" if head.count(":") == 1 else head) + zone


def _words_iso_date(text: str) -> bool:
    return _format_check("date", text) is True


def _words_time(tokens: Sequence[Any], at: int) -> tuple[str, int] | None:
    """Return a time of day as HH:MM or HH:MM:SS, and its end: 15:00, 9am, 7:45 pm, noon."""
    low, end = _words_low(tokens, at), at + 1
    if low in WORDS_CLOCK:
        return (WORDS_CLOCK[low], end)
    half = ""
    bare = low.replace(".", "")
    if bare[-2:] in ("am", "pm"):
        low, half = bare[:-2], bare[-2:]
    elif _words_low(tokens, end).replace(".", "") in ("am", "pm"):
        half, end = tokens[end].low.replace(".", ""), end + 1
    phase = " ".join(_words_low(tokens, end + far) for far in range(3)) if low.isdigit() and not half else ""
    for words, mark in WORDS_PHASES.items():
        if (phase + " ").startswith(words + " "):
            half, end = mark, end + len(words.split())
    parts = low.split(":")
    if not all(part.isascii() and part.isdigit() and len(part) <= 2 for part in parts) or len(parts) > 3:
        return None
    if len(parts) == 1 and not half or any(len(part) != 2 for part in parts[1:]):
        return None
    hour = int(parts[0])
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    text = ":".join([f"{hour:02}", *(parts[1:] or ["00"])])
    return (text, end) if _format_check("time", _words_full(text)) else None


def _words_date(tokens: Sequence[Any], at: int, today: Any) -> tuple[str, int] | None:
    """Return a date in ISO 8601 and its end; relative ones count from today."""
    import datetime

    low, after = tokens[at].low, _words_low(tokens, at + 1)
    if _words_iso_date(tokens[at].text):
        return (tokens[at].text, at + 1)
    shift = _words_shift(tokens, at, today)
    if shift is not None:
        try:
            return ((today + datetime.timedelta(days=shift[0])).isoformat(), shift[1])
        except OverflowError:
            return None
    month, day, end = None, "", at
    if low in WORDS_MONTHS:
        month, day, end = WORDS_MONTHS[low], after, at + 2
    else:
        gap = 2 if after == "of" else 1
        word = _words_low(tokens, at + gap)
        if word in WORDS_MONTHS:
            month, day, end = WORDS_MONTHS[word], low, at + gap + 1
    digits = day[:-2] if day[-2:] in ("st", "nd", "rd", "th") else day
    if month is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 2):
        return None
    year = today.year
    comma = 1 if _words_low(tokens, end) == "," else 0
    written = _words_low(tokens, end + comma)
    if len(written) == 4 and written.isascii() and written.isdigit():
        year, end = int(written), end + comma + 1
    text = f"{year:04}-{month:02}-{int(digits):02}"
    return (text, end) if _words_iso_date(text) else None


def _words_shift(tokens: Sequence[Any], at: int, today: Any) -> tuple[int, int] | None:
    """Return the days from today to a relative date, and its end."""
    low, after = tokens[at].low, _words_low(tokens, at + 1)
    if low in WORDS_RELATIVE:
        return (WORDS_RELATIVE[low], at + 1)
    if (low, after, _words_low(tokens, at + 2)) == ("day", "after", "tomorrow"):
        return (2, at + 3)
    if low in ("next", "last", "this", "coming", "past"):
        if after == "week" and low in ("next", "last"):
            return (7 if low == "next" else -7, at + 2)
        if after in WORDS_WEEKDAYS:
            ahead = (WORDS_WEEKDAYS[after] - today.weekday()) % 7 or 7
            return (ahead % 7 - 7 if low in ("last", "past") else ahead, at + 2)
        return None
    if low in WORDS_WEEKDAYS and len(low) > 3:
        return ((WORDS_WEEKDAYS[low] - today.weekday()) % 7 or 7, at + 1)
    start = at + 1 if low == "in" else at
    count = _words_low(tokens, start)
    unit = WORDS_DAYS.get(_words_low(tokens, start + 1))
    many = 1 if count in ("a", "one") else int(count) if count.isascii() and count.isdigit() and len(count) < 5 else (
        WORDS_NUMBERS.get(count))
    if unit is None or many is None:
        return None
    tail = (_words_low(tokens, start + 2), _words_low(tokens, start + 3))
    if tail[0] == "ago" and low != "in":
        return (-many * unit, start + 3)
    if tail in (("from", "now"), ("from", "today")) and low != "in":
        return (many * unit, start + 4)
    return (many * unit, start + 2) if low == "in" else None
# endregion WORDS


# region PLANNER -- prompts, grammar, model back ends, evaluation
# needs: LIMITS ERRORS JSON ENV SCHEMA TYPES REG CALL FETCH
# A planner turns a sentence into the text of a plan, and PLAN judges that text like any other: nothing here can call a
# command. What a planner may know is the request, made from the registry alone: names, help, types and choices. A model
# is asked once for each sentence and never sees a result. Its server must be this machine unless the program says
# otherwise, in so many words. An evaluation compares plans with those that rows of a file expect; it runs none.


class PlanRequest:
    """What a planner is asked: a sentence, and what the application exposes to a model.

    ``schema`` and ``prompt`` are made when they are first looked at.
    """

    def __init__(
        self, utterance: str, tools: Sequence[Mapping[str, Any]], *, now: float = 0.0,
        hints: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.utterance = utterance  #: the person's own words
        self.tools = list(tools)  #: {"name", "description", "input", "destructive"} of every exposed command
        self.now = now  #: seconds since 1970, for relative dates
        #: name -> {"keywords", "examples", "readonly", "output"}, what helps to choose and is no part of a plan
        self.hints = dict(hints or {})
        self._schema: dict[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of every plan that a check would take, for constrained decoding."""
        if self._schema is None:
            self._schema = _planner_schema(self.tools)
        return self._schema

    @property
    def prompt(self) -> str:
        """Instructions for a model: every exposed command with its types and choices, and nothing else."""
        return _planner_prompt(self)


class Planner:
    """Base of all planners; anything with propose(request) -> str will do."""

    thinking = "closed"  #: "prefilled" where the model's template opens the think block itself

    def propose(self, request: PlanRequest) -> str:
        """Return the text of a plan; {"plan": []} where no command fits. One inference, no effects on commands."""
        raise Error("BAD_REQUEST", f"{type(self).__name__} has no propose(request) of its own")


class ScriptedPlanner(Planner):
    """Give prepared answers, for tests: a mapping utterance -> answer, or a sequence given in turn.

    An answer is text, or a value that becomes JSON. ``requests`` keeps what was asked. What has no answer gets an
    empty plan.
    """

    def __init__(self, answers: Any, *, thinking: str = "closed") -> None:
        self.thinking = _planner_check_thinking(thinking)  #: as Planner.thinking
        self.requests: list[PlanRequest] = []  #: every request, in order
        self._answers = dict(answers) if hasattr(answers, "keys") else list(answers)

    def propose(self, request: PlanRequest) -> str:
        """Return the prepared answer."""
        self.requests.append(request)
        answers = self._answers
        turn: Any = request.utterance if isinstance(answers, dict) else len(self.requests) - 1
        known = turn in answers if isinstance(answers, dict) else turn < len(answers)
        answer = answers[turn] if known else {"plan": []}
        return answer if isinstance(answer, str) else _json_dumps(answer)


class OllamaPlanner(Planner):
    """Ask a model that Ollama serves: one POST to /api/chat with the schema of all valid plans as its format.

    host: its address; any but this machine's needs remote=True. seconds: for the whole answer. options: Ollama's own,
    beside temperature 0. thinking: "prefilled" for a model whose template opens the think block.
    """

    _path = "/api/chat"

    def __init__(
        self, model: str, host: str = "http://127.0.0.1:11434", *, seconds: float = PLANNER_SECONDS,
        thinking: str = "closed", remote: bool = False, token: str | None = None,
        options: Mapping[str, Any] | None = None, env: Env | None = None,
    ) -> None:
        self.model = model  #: name of the model
        self.host = host  #: address of the server
        self.seconds = seconds  #: for one inference
        self.thinking = _planner_check_thinking(thinking)  #: as Planner.thinking
        self.remote = remote  #: whether the server may be another machine
        self.options = dict(options or {})  #: sent along
        self._token, self._env = token, env

    def propose(self, request: PlanRequest) -> str:
        """Return what the model wrote. Raises: FORBIDDEN, BAD_REQUEST, CONNECTION_*, UPSTREAM_TOOL_ERROR."""
        answer = _planner_post(self.host, self._path, self._body(request), seconds=self.seconds, remote=self.remote,
                               token=self._token, env=self._env)
        text = self._text(answer)
        if not isinstance(text, str):
            raise Error("UPSTREAM_TOOL_ERROR", "the model server answered without the text of a message")
        return text

    def _body(self, request: PlanRequest) -> dict[str, Any]:
        return {
            "model": self.model, "messages": _planner_messages(request), "stream": False, "format": request.schema,
            "options": dict({"temperature": 0}, **self.options),
        }

    def _text(self, answer: Any) -> Any:
        return _planner_at(answer, "message", "content")


class ChatPlanner(OllamaPlanner):
    """Ask a model behind an OpenAI-compatible API: one POST to /v1/chat/completions with response_format json_schema.

    url: the server's address, with or without /v1. token: sent as a bearer token and shown nowhere. Otherwise as
    OllamaPlanner.
    """

    _path = "/v1/chat/completions"

    def __init__(
        self, model: str, url: str = "http://127.0.0.1:8080", *, token: str | None = None,
        seconds: float = PLANNER_SECONDS, thinking: str = "closed", remote: bool = False,
        options: Mapping[str, Any] | None = None, env: Env | None = None,
    ) -> None:
        url = url.rstrip("/")
        super().__init__(model, url[:-3] if url.endswith("/v1") else url, seconds=seconds, thinking=thinking,
                         remote=remote, token=token, options=options, env=env)

    def _body(self, request: PlanRequest) -> dict[str, Any]:
        wanted = {"type": "json_schema", "json_schema": {"name": "plan", "schema": request.schema}}
        fixed = {"model": self.model, "messages": _planner_messages(request), "stream": False, "temperature": 0,
                 "response_format": wanted}
        return dict(fixed, **self.options)

    def _text(self, answer: Any) -> Any:
        return _planner_at(answer, "choices", 0, "message", "content")


def _planner_check_thinking(thinking: str) -> str:
    if thinking not in ("closed", "prefilled"):
        raise Error("BAD_REQUEST", f'thinking must be "closed" or "prefilled", not {_json_show(thinking)}')
    return thinking


def _planner_messages(request: PlanRequest) -> list[dict[str, str]]:
    """Return the one exchange that is sent: the instructions, and the person's own words. Pure."""
    return [{"role": "system", "content": request.prompt}, {"role": "user", "content": request.utterance}]


def _planner_at(value: Any, *path: Any) -> Any:
    """Return what stands at a path of a JSON value, None where there is no such place. Pure."""
    for step in path:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return None
    return value


def _planner_post(
    host: str, path: str, body: Mapping[str, Any], *, seconds: float, remote: bool, token: str | None,
    env: Env | None,
) -> Any:
    """POST JSON to a model server and return the JSON it answers. Uses the network.

    Raises: FORBIDDEN for an address that is not this machine's without remote=True, before anything is looked up;
    BAD_REQUEST, CONNECTION_*; UPSTREAM_TOOL_ERROR for another status than 200, or no JSON.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token is not None:
        if not isinstance(token, str) or not token or not all("!" <= mark <= "~" for mark in token):
            raise Error("BAD_REQUEST", "the token of the planner must be printable ASCII without blanks")
        headers["Authorization"] = f"Bearer {token}"
    request = _FetchRequest(
        host.rstrip("/") + path, env or Env(), method="POST", headers=headers, private=True, switch="remote=True",
        max_bytes=PLANNER_ANSWER_BYTES, max_redirects=0, timeout=seconds, body_timeout=seconds,
    )  # fmt: skip
    if remote is not True and not _planner_is_local(request.url):
        where = _fetch_authority(request.url)
        raise Error("FORBIDDEN", f"{where} is not this machine, and a planner would send it every sentence; "
                    "remote=True permits it")
    request.body = _json_dumps(body, ascii_only=True).encode("ascii")
    response = _fetch_open(request)
    data = b"".join(response.chunks())
    if response.status != FETCH_WHOLE:
        raise Error("UPSTREAM_TOOL_ERROR", f"the model server answered {response.status} to {path}",
                    hint="see whether the server runs and knows the model")
    try:
        return _json_loads(data)
    except _JsonFault as fault:
        raise Error("UPSTREAM_TOOL_ERROR", f"the model server answered no JSON: {fault.reason}") from None


def _planner_is_local(url: tuple[Any, ...]) -> bool:
    """Tell whether a URL names this machine itself, by its loopback address or the name localhost. Pure."""
    _, host, literal, _, _ = url
    return host == "localhost" if not literal else _fetch_private(host) == FETCH_LOOPBACK


# The request: what a model may know, its grammar and its instructions


def _planner_request(engine: Engine, utterance: str) -> PlanRequest:
    """Return the request for a sentence: the visible commands on agent, without the secrets that they may take.

    Reads clock. Raises: REGISTRATION_ERROR, BAD_REQUEST for what is no text.
    """
    if not isinstance(utterance, str):
        raise Error("BAD_REQUEST", f"an utterance is text, not {_json_show(utterance)}")
    tools, hints = [], {}
    for command in engine.registry.commands("agent"):
        if command.hidden:
            continue
        tools.append({
            "name": command.name, "description": command.description, "input": _planner_input(command),
            "destructive": bool(command.destructive),
        })
        hints[command.name] = {
            "keywords": list(command.keywords), "examples": list(command.examples),
            "readonly": bool(command.readonly), "output": _json_copy(command.output.schema) if command.output else None,
        }
    return PlanRequest(utterance, tools, now=engine.env.now(), hints=hints)


def _planner_input(command: Command) -> dict[str, Any]:
    """Return the schema of a command's arguments as models see it: without secrets, and with paths marked. Pure.

    A copy: a planner may do with it what its server needs.
    """
    schema: dict[str, Any] = _json_copy(command.input.schema)
    hidden = {field.name for field in command.fields if field.secret}
    paths = {field.name for field in command.fields if field.path or field.shape and field.shape.has_role("path")}
    if not hidden and not paths:
        return schema
    known = schema.get("properties", {})
    shown = {name: dict(part, format="path") if name in paths and part.get("type") == "string" else part
             for name, part in known.items() if name not in hidden}
    return dict(schema, properties=shown)


#: Keywords that a grammar keeps: those which llama.cpp, Ollama and OpenAI-compatible servers turn into rules.
PLANNER_KEYWORDS = frozenset(
    "type enum description minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems "
    "maxItems".split()
)
PLANNER_FORMATS = frozenset(("date", "date-time", "time", "uuid", "email", "ipv4", "ipv6"))
PLANNER_REFERENCE = {"type": "string", "pattern": "^\\$[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z0-9_-]+)*$"}
PLANNER_LEVELS = 16  # of a schema that a grammar follows; below, anything goes and the check decides


def _planner_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON Schema of every plan over these tools, in the few keywords that decoders know. Pure.

    Every argument may also be a reference to an earlier result. What a schema cannot say (bounds of a text's parts,
    conditions, the order of references) is left to the check.
    """
    steps = [{
        "type": "object",
        "properties": {
            "tool": {"type": "string", "enum": [tool["name"]]},
            "args": _planner_grammar(tool["input"], tool["input"], 0, True),
            "output": {"type": "string", "pattern": "^\\$[A-Za-z_][A-Za-z0-9_]*$"},
        },
        "required": ["tool", "args"], "additionalProperties": False,
    } for tool in tools]
    plan: dict[str, Any] = {"type": "array", "maxItems": PLAN_STEPS if steps else 0}
    if steps:
        plan["items"] = {"anyOf": steps} if len(steps) > 1 else steps[0]
    return {"type": "object", "properties": {"plan": plan}, "required": ["plan"], "additionalProperties": False}


def _planner_grammar(schema: Any, root: Any, level: int, top: bool = False) -> dict[str, Any]:
    """Return a part of a command's schema in the keywords of a grammar, references expanded; {} for anything. Pure."""
    schema = _schema_resolve(schema, root) if isinstance(schema, dict) else schema
    if not isinstance(schema, dict) or level > PLANNER_LEVELS or "allOf" in schema or "not" in schema:
        return {}
    made: dict[str, Any] = {key: value for key, value in schema.items() if key in PLANNER_KEYWORDS}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    if schema.get("format") in PLANNER_FORMATS:
        made["format"] = schema["format"]
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and pattern[:1] == "^" and pattern[-1:] == "$" and "(?" not in pattern:
        made["pattern"] = pattern
    branches = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(branches, list):
        made["anyOf"] = [_planner_grammar(branch, root, level + 1, True) for branch in branches]
    if isinstance(schema.get("properties"), dict) or top and level == 0:
        parts = schema.get("properties", {})
        made["properties"] = {name: _planner_grammar(part, root, level + 1) for name, part in parts.items()}
        made["required"] = [name for name in schema.get("required", ()) if name in parts]
        made["additionalProperties"] = False if level == 0 else schema.get("additionalProperties", True) is not False
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _planner_grammar(schema["additionalProperties"], root, level + 1)
    if isinstance(schema.get("items"), dict):
        made["items"] = _planner_grammar(schema["items"], root, level + 1)
    return made if top or not made else _planner_or_reference(made)


def _planner_or_reference(made: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value or of a reference to one; free text can be a reference already. Pure."""
    if made.get("type") == "string" and not {"enum", "pattern", "format", "maxLength"} & made.keys():
        return made
    if list(made) in (["anyOf"], ["anyOf", "description"], ["description", "anyOf"]):
        return dict(made, anyOf=made["anyOf"] + [PLANNER_REFERENCE])
    return {"anyOf": [made, PLANNER_REFERENCE]}


def _planner_prompt(request: PlanRequest) -> str:
    """Return the instructions for a model. Pure."""
    lines = [
        "Turn the user's request into a plan: calls of the commands below, and nothing else.",
        'Answer with one JSON object {"plan": [{"tool": NAME, "args": {...}}]} and no other text.',
        "Give only arguments that the command lists; leave out an optional one that the user does not mention.",
        "Copy names and texts exactly as the user wrote them.",
        'A later step may use an earlier result: give the earlier step "output": "$name" and write "$name.field" as '
        'the argument. A text that begins with $ is written with $$.',
        'Answer {"plan": []} when no command fits, when a required value is missing, when the user asks not to do '
        "something, or when the request is no request.",
    ]
    if request.now:
        import datetime

        lines.append(f"Now it is {datetime.datetime.fromtimestamp(request.now):%A %Y-%m-%d %H:%M}.")
    lines += ["", "Commands:"]
    for tool in request.tools:
        hint = request.hints.get(tool["name"], {})
        mark = " (destructive)" if tool["destructive"] else ""
        lines += ["", f"{tool['name']}{mark}: {_planner_line(tool['description'])}"]
        if hint.get("keywords"):
            lines.append("  also: " + ", ".join(map(_planner_line, hint["keywords"])))
        schema = tool["input"]
        for name, part in schema.get("properties", {}).items():
            need = "required" if name in schema.get("required", ()) else "optional"
            text = _planner_line(str(part.get("description", ""))) if isinstance(part, dict) else ""
            lines.append(f"  {name}: {_planner_type(part, schema)}, {need}" + (f" -- {text}" if text else ""))
    return "\n".join(lines) + "\n"


def _planner_line(text: str) -> str:
    return _env_human(" ".join(text.split()))


def _planner_type(schema: Any, root: Any, level: int = 0) -> str:
    """Return what a prompt says of a value: its type, choices and bounds. Pure."""
    leaves = _planner_leaves(schema, root)
    words = []
    for leaf in leaves:
        if "enum" in leaf:
            values = [_json_dumps(value) for value in leaf["enum"][:PLANNER_CHOICES_SHOWN]]
            more = len(leaf["enum"]) - len(values)
            words.append("one of " + ", ".join(values) + (f" and {more} more like these" if more else ""))
        elif leaf.get("type") == "array":
            inner = _planner_type(leaf["items"], root, level + 1) if "items" in leaf and level < PLANNER_LEVELS else ""
            words.append("array" + (f" of ({inner})" if inner else ""))
        elif leaf.get("type") != "null":
            kind = str(leaf.get("format") or leaf.get("type") or "any")
            bounds = [f"{sign} {leaf[key]}" for key, sign in (
                ("minimum", ">="), ("maximum", "<="), ("minLength", "length >="), ("maxLength", "length <="),
                ("pattern", "matching")) if key in leaf]
            words.append(" ".join([kind, *bounds]))
    return " or ".join(dict.fromkeys(words)) or "null"


def _planner_leaves(schema: Any, root: Any) -> list[dict[str, Any]]:
    """Return the alternatives of a value's schema, null left out. Pure."""
    leaves = []
    for leaf in _types_leaves(schema, root):
        kinds = leaf.get("type")
        if isinstance(kinds, list):
            kinds = [kind for kind in kinds if kind != "null"]
            leaf = dict(leaf, type=kinds[0] if len(kinds) == 1 else kinds or "null")
        if leaf.get("type") != "null":
            leaves.append(leaf)
    return leaves


# Evaluation


def evaluate(app: Any, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Measure how well an application's planner understands sentences; nothing is ever executed.

    rows: {"utterance" or "utterances", "plan": [{"tool", "args", "output"?}] or "refuse": True, "now"?: ISO 8601}.
    A plan is exact when its tools and all arguments are those of the row, with defaults filled in; names of outputs do
    not matter. app needs plan(utterance, now=seconds) and check(envelope). A refusal of any kind counts as refused.

    Returns counts (rows, exact, refused, missed, wrong, acted, destructive), rates (accuracy, bad), commands (name ->
    asked, exact), confusions, codes of refusals, failures, seconds (median, worst), and text, the same for people.
    Raises: BAD_REQUEST for a row that is none, or whose own plan the application refuses.
    """
    import time

    counts = dict.fromkeys(("rows", "plans", "exact", "refused", "missed", "wrong", "acted", "destructive"), 0)
    commands: dict[str, list[int]] = {}
    confusions: dict[str, int] = {}
    codes: dict[str, int] = {}
    failures, seconds = [], []
    for number, row in enumerate(rows, 1):
        utterances, wanted, now = _planner_row(app, row, number)
        for utterance in utterances:
            began = time.perf_counter_ns()
            got, code = _planner_outcome(app, utterance, now)
            seconds.append((time.perf_counter_ns() - began) / PLANNER_NANOSECONDS)
            kind = _planner_verdict(wanted, got)
            counts["rows"] += 1
            counts["plans"] += bool(wanted)
            counts[kind] += 1
            if code:
                codes[code] = codes.get(code, 0) + 1
            name = wanted[0][0] if wanted else "(refuse)"
            tally = commands.setdefault(name, [0, 0])
            tally[0] += 1
            tally[1] += kind in ("exact", "refused")
            if kind in ("wrong", "acted", "missed"):
                counts["destructive"] += any(step[2] for step in got)
                pair = f"{name} -> {got[0][0] if got else '(refuse)'}"
                confusions[pair] = confusions.get(pair, 0) + 1
                failures.append({"kind": kind, "utterance": utterance, "wanted": [list(step[:2]) for step in wanted],
                                 "got": [list(step[:2]) for step in got]})
    seconds.sort()
    report: dict[str, Any] = dict(counts, commands={name: {"asked": tally[0], "exact": tally[1]}
                                                    for name, tally in sorted(commands.items())})
    report["accuracy"] = counts["exact"] / (counts["plans"] or 1)
    report["bad"] = (counts["wrong"] + counts["acted"]) / (counts["rows"] or 1)
    report["seconds"] = {"median": seconds[len(seconds) // 2], "worst": seconds[-1]} if seconds else {}
    report.update(confusions=confusions, codes=codes, failures=failures)
    report["text"] = _planner_report(report)
    return report


def _planner_row(app: Any, row: Any, number: int) -> tuple[list[str], list[Any], float | None]:
    """Return the sentences of a row, its plan as _planner_shape gives it, and its time. Raises: BAD_REQUEST."""
    import datetime

    try:
        utterances = list(row["utterances"]) if "utterances" in row else [row["utterance"]]
        if not all(isinstance(utterance, str) for utterance in utterances) or ("plan" in row) == ("refuse" in row):
            raise ValueError
        now = None
        if "now" in row:
            moment = datetime.datetime.fromisoformat(row["now"].replace("Z", "+00:00"))
            now = moment.timestamp()
        plan = row.get("plan", [])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise Error("BAD_REQUEST", f'row {number} is no row: give "utterance" and either "plan" or "refuse": true, '
                    'and perhaps "now" in ISO 8601') from None
    try:
        return utterances, _planner_shape(app.check({"plan": plan})) if plan else [], now
    except Error as error:
        raise Error("BAD_REQUEST", f"the plan of row {number} is refused: {error.message}") from None


def _planner_outcome(app: Any, utterance: str, now: float | None) -> tuple[list[Any], str]:
    """Return the plan that an application makes of a sentence as _planner_shape gives it, or why it makes none."""
    try:
        plan = app.plan(utterance) if now is None else app.plan(utterance, now=now)
    except Error as error:
        return [], error.code
    return (_planner_shape(plan), "") if len(plan) else ([], "NOT_FOUND")


def _planner_shape(plan: Any) -> list[Any]:
    """Return (tool, arguments with defaults, destructive) of every step, outputs named by the step. Pure."""
    names: dict[str, str] = {}
    shaped = []
    for index, step in enumerate(plan):
        args = {field.name: field.default for field in step.command.fields if field.default is not TYPES_ABSENT}
        args.update(_json_copy(step.args))
        for place, _, name, path in step.refs:
            _call_put(args, place, ["$", names.get(name, name), *path])
        if step.output is not None:
            names[step.output] = str(index)
        shaped.append((step.tool, args, bool(step.command.destructive)))
    return shaped


def _planner_verdict(wanted: Sequence[Any], got: Sequence[Any]) -> str:
    """Return exact, refused (rightly), missed (refused wrongly), wrong, or acted (where it should refuse). Pure."""
    if not got:
        return "missed" if wanted else "refused"
    if not wanted:
        return "acted"
    same = len(wanted) == len(got) and all(
        one[0] == other[0] and _json_key(one[1]) == _json_key(other[1]) for one, other in zip(wanted, got))
    return "exact" if same else "wrong"


def _planner_report(report: Mapping[str, Any]) -> str:
    """Return an evaluation as a person reads it. Pure."""
    refusals = report["rows"] - report["plans"]
    lines = [
        f"{report['exact']} of {report['plans']} plans are exact ({report['accuracy']:.0%}), "
        f"{report['refused']} of {refusals} refusals are right",
        f"{report['missed']} refused that could have been planned; {report['wrong']} planned wrongly, "
        f"{report['acted']} planned that should have been refused ({report['bad']:.1%} of all), "
        f"{report['destructive']} of them destructive",
    ]
    if report["seconds"]:
        lines.append("time: median {median:.4f} s, worst {worst:.4f} s".format(**report["seconds"]))
    lines += ["", "by command (exact of asked):"]
    lines += [f"  {name:20} {tally['exact']:4} of {tally['asked']}" for name, tally in report["commands"].items()]
    if report["confusions"]:
        lines += ["", "confusions (wanted -> got):"]
        ranked = sorted(report["confusions"].items(), key=lambda item: (-item[1], item[0]))
        lines += [f"  {count:4}  {pair}" for pair, count in ranked[:PLANNER_SHOWN_ROWS]]
    for kind in ("wrong", "acted", "missed"):
        rows = [failure for failure in report["failures"] if failure["kind"] == kind]
        lines += ["", f"{kind}:"] if rows else []
        for failure in rows[:PLANNER_SHOWN_ROWS]:
            lines.append("  " + _json_show(failure["utterance"], PLANNER_SHOWN_CHARACTERS))
            lines += [f"    {side}: {_json_show(failure[side], PLANNER_SHOWN_CHARACTERS)}" for side in ("wanted", "got")
                      if failure[side]]
    return _env_human("\n".join(lines), lines=True) + "\n"
# endregion PLANNER


# region LEXICAL -- LexicalPlanner: plans without a model
# needs: LIMITS JSON SCHEMA TYPES PLAN WORDS PLANNER
# The default planner needs no model. For every command it reads the sentence as if that command were meant:
#
#     tokens    words, marks, quoted texts, --options, key=value
#     spans     what has a type whatever the command: numbers, dates, times, paths, addresses
#     clauses   a slot of the command, its value, and the words that tie the two ("priority high", "before May 1")
#     text      the rest, for the one slot of free text, between the words before and the clauses after it
#     words     every other word is one of the command's own, or carries no meaning, or costs
#
# A reading counts only if no required slot is empty and what is left over costs less than the filled slots allow:
# nothing may be left where something is destroyed. The best is taken if it leads by enough, else the plan is empty.
# What words mean comes from the registry, and from tables of common English.

#: Acts that bring something new into being: what they make must be what the command makes.
LEXICAL_MAKING = frozenset(WORDS_ACTS[2].split())
#: Words that turn a meaning round: they are never explained by standing in a help text.
LEXICAL_TURNING = frozenset((
    "or but not no if unless without except than nor neither instead rather maybe perhaps possibly again hundred "
    "thousand dozen"
).split())
LEXICAL_VAGUE = frozenset((
    "nothing later something anything stuff things thing one ones more else somebody someone"
).split())
LEXICAL_REQUESTS = frozenset(
    "show give tell get display print see view know check look find list fetch want details detail info "
    "information".split()
)
LEXICAL_BREAKS = frozenset(". ; ? ! instead actually unless".split())
LEXICAL_SECOND_THOUGHTS = tuple((
    "no wait/never mind/forget it/scratch that/cancel that/not yet/no ,/or not/but not/but don't/but do not/or "
    "maybe/or rather/and not"
).split("/"))
LEXICAL_CONDITIONS = frozenset("if when whether".split())  # idle in a question, never in an order
LEXICAL_WISHES = frozenset("like i'd want need".split())
LEXICAL_SHALL = frozenset("should shall must needs becomes".split())
LEXICAL_ADDING = frozenset("including too also plus both even and or".split())
LEXICAL_LISTING = frozenset("as with : = the of to called named tag tags".split())  # between a name and its words
LEXICAL_LIGHT = frozenset("set make mark put have give".split())
LEXICAL_ARTICLES = frozenset("a an the my this that some new another following our".split())
LEXICAL_LOOSE = frozenset("in from at on for with by to into under on after since until about like inside".split())
LEXICAL_BEFORE = frozenset("from with at the a an its in".split())
LEXICAL_TIES = frozenset(
    "named called of is are to at as = : number no no. # be in with the a an for by on from ' into was".split()
)
LEXICAL_TEXT_LEADS = frozenset((
    "depicting featuring where like to called named titled : that for saying of showing with reading about as ="
).split())
LEXICAL_HAVE = frozenset("i have need must should following to".split())
LEXICAL_NAMING = frozenset("say says read reads rename retitle reword called named titled name call".split())
LEXICAL_NEGATIONS = frozenset(
    "not never don't dont doesn't cannot can't won't shouldn't mustn't stop avoid cancel unless refrain nobody nothing "
    "neither nor instead rather except didn't isn't wasn't aren't abort undo".split()
)
#: How a question about the program itself, or about what should be done, begins.
LEXICAL_ABOUT = tuple((
    "how are you/how is it/how do/how to/how can/how should/how would/how does/how could/how did/how come/what "
    "can/what do/what did/what if/what should/what would/what happens/what commands/what kind/what is a/what is "
    "an/what 's a/why/who/whose/should/do i/did/does/would it/explain/help/where/suppose/are you/do you/have "
    "you/will it"
).split("/"))
LEXICAL_DATA = tuple((
    "what/how is it/how does/how did/are/do you/have you/does/will it/where"
).split("/"))
LEXICAL_ABOUT_MINE = tuple((
    "what do i have/what do i still/what do i need/what do we have/what have i/do i have/what did i"
).split("/"))
LEXICAL_GREETINGS = frozenset("hey hi hello ok okay so well and but then also just now".split())
LEXICAL_MODALS = frozenset("can could would will may shall might let's let".split())
LEXICAL_WANTS = tuple((
    "is it possible/any chance/is there a/can you/could you/would you/will you/please/i want/i need/i'd/i would"
).split("/"))
LEXICAL_QUESTIONS = frozenset("what what's whats which how is are was were does do when where who has have".split())
#: Words that tie a value to a parameter: what may stand before the value, and words of the parameter's name.
LEXICAL_PREPOSITIONS = (
    "from since between: from/from since between starting: start/from since: begin/since from: since/from of: "
    "source/from: src, old, input/to into: to, target, dest, destination, output/to until till and ending: "
    "end/until till to: until/to as: new/before earlier older than: before/after since: after/due by on before "
    "until for deadline: due/by on until: deadline/in inside under within from below: folder, directory, dir/in at "
    "for: tz, zone, timezone/in at: place, city, location/as in format: fmt/as in: format/in: unit/at of by: "
    "size/with: with, label, labels, status/by: by/on: on, date, day/with tagged: tag/with tagged labelled labeled: "
    "tags/called named: name/called named titled say says read reads become becomes: title/of: value/in for "
    "matching containing like about with named called contain contains include including: query/just only exactly n "
    "x: many/at: at, time/with at to: priority"
)
LEXICAL_WAYS = frozenset((
    "from to start end begin until since source src target dest destination before after"
).split())
LEXICAL_STARTS = frozenset("from start begin since source src".split())
LEXICAL_NAME_WORDS = {
    "tz": "zone", "fmt": "format", "dir": "directory", "src": "source", "num": "number", "id": "number",
}
#: How surely words tie a value to a slot, and what a slot filled in that way adds to a reading.
LEXICAL_BARE, LEXICAL_SAID, LEXICAL_NEAR, LEXICAL_NOUN, LEXICAL_WAY, LEXICAL_NAME, LEXICAL_OPTION = range(1, 8)
LEXICAL_TEXT_ADDS = 0.5  # a free text takes anything, so it says little
LEXICAL_ADDS = (0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0)
LEXICAL_TAILS = tuple((
    "to my list/to the list/on my list/on the list/in my list/onto my list/on my todo list/to my todo list/to my "
    "to-do list/on the todo list/for me/on there/in there/please/thanks/thank you/in the name/in their name/in "
    "their names/in its name/if you can"
).split("/"))
LEXICAL_POINTERS = frozenset("it that this them".split())  # what a second step calls the result of the first


class LexicalPlanner(Planner):
    """Plan without a model, from the words of names, keywords, help, parameters and choices alone; English.

    It prefers to give up: an empty plan where a value is missing, too much stays unexplained (one word where something
    is destroyed), the sentence forbids, asks about the program, or fits two commands. One object serves one application
    and keeps what it learnt of it.
    """

    def __init__(self) -> None:
        self._tools: list[Any] = []
        self._hints: dict[str, Any] = {}
        self._known: list[Any] = []

    def propose(self, request: PlanRequest) -> str:
        """Return the text of a plan of one or two steps, or of an empty one. Pure but for what it keeps."""
        if self._tools != request.tools or self._hints != request.hints:
            self._known = _lexical_learn(request)
            self._tools, self._hints = request.tools, request.hints
        tokens = _lexical_split(self._known, _words_tokens(request.utterance))
        steps = _lexical_plan(self._known, tokens, request.now) if tokens else []
        return _json_dumps({"plan": steps})


def _lexical_learn(request: PlanRequest) -> list[Any]:
    """Return what is known of every tool: its words with their weights, and its slots. Pure."""
    import math
    from types import SimpleNamespace

    acts, things = _lexical_acts(WORDS_ACTS + WORDS_THINGS), _lexical_acts(WORDS_THINGS)
    phrasal = _words_table(WORDS_PHRASAL)
    known: list[Any] = []
    for tool in request.tools:
        hint = request.hints.get(tool["name"], {})
        made = SimpleNamespace(
            name=tool["name"], destructive=bool(tool["destructive"]), readonly=hint.get("readonly") is True,
            schema=tool["input"], output=hint.get("output"), judge=None, words={}, strong=set(), verbs=set(),
            nouns=set(), slots=[], acts=acts,
        )
        described = _words_of(tool["description"])
        keywords = [word for text in hint.get("keywords", ()) for word in _words_of(text)]
        own = _words_of(tool["name"])
        made.slots = _lexical_slots(tool["input"])
        output = made.output.get("properties") if isinstance(made.output, dict) and made.readonly else None
        results = [word for name in output or () for word in _words_of(name)]
        parts = [(0.5, results), (1.0, described), (3.0, keywords), (4.0, own)]
        parts[:0] = [(0.5, [*slot.names, *slot.nouns]) for slot in made.slots]
        parts[:0] = [(1.0, list(slot.choices)) for slot in made.slots if len(slot.choices) <= PLANNER_CHOICES_SHOWN]
        for weight, words in parts:
            for word in words:
                if word not in LEXICAL_TURNING and (word not in WORDS_IDLE or weight > 1):
                    made.words[_words_stem(word)] = weight
        made.strong = {_words_stem(word) for word in [tool["name"], *own, *keywords]}
        made.verbs = made.strong | {_words_stem(word) for word in described[:1]}
        made.nouns = {_words_stem(word) for word in described[1:6] if word not in WORDS_IDLE}
        known.append(made)
    for made in known:  # the same act under another word counts a little less
        for stem, weight in list(made.words.items()):
            for other in acts.get(stem, ()) if weight >= 1 else ():
                made.words[other] = max(made.words.get(other, 0), weight * LEXICAL_KIN_PART)
        made.near = {other for stem in made.verbs for other in acts.get(stem, ())} | made.verbs
        made.nouns = {other for stem in made.nouns for other in things.get(stem, (stem,))}
    named = frozenset(stem for made in known for slot in made.slots for stem in slot.stems)
    spoken = frozenset(stem for made in known for stem in made.words)
    changing = frozenset(stem for made in known if not made.readonly for stem in (
        made.near if made.destructive else made.verbs))
    for made in known:
        made.things = named
        made.spoken = spoken
        made.changing = changing
        made.phrasal = phrasal
    many = len(known)
    for stem in {stem for made in known for stem in made.words}:
        holders = [(made, made.words[stem]) for made in known if stem in made.words]
        for made, weight in holders:  # a word says less where it means as much to other commands
            rivals = sum(other * 2 >= weight for _, other in holders)
            made.words[stem] = weight * math.log(1 + many / rivals) / math.log(1 + many)
    return known


def _lexical_acts(rows: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return stem -> the stems of words for the same act. Pure."""
    acts: dict[str, frozenset[str]] = {}
    for row in rows:
        stems = frozenset(map(_words_stem, row.split()))
        for stem in stems:
            acts[stem] = acts.get(stem, frozenset()) | stems
    return acts


#: kind -> what people call any value of it.
LEXICAL_KIND_WORDS = {
    "date": "date day", "datetime": "date time", "time": "time", "path": "file path", "email": "email address",
    "integer": "number",
}
#: format of a text -> the kind of span that fills it.
LEXICAL_SPANS = {
    "date": "date", "date-time": "datetime", "iso-date-time": "datetime", "time": "time", "iso-time": "time",
    "email": "email", "path": "path",
}
LEXICAL_PROBES = (("date", "2026-05-04"), ("datetime", "2026-05-04T10:00"), ("time", "10:00"), ("email", "a@b.example"))


def _lexical_slots(schema: Mapping[str, Any]) -> list[Any]:
    """Return what is known of every argument: kinds of value, words, prepositions, choices. Pure."""
    slots, prepositions = [], _words_table(LEXICAL_PREPOSITIONS)
    for name, part in schema.get("properties", {}).items():
        slot = _lexical_slot(name, part, schema, prepositions)
        required = name in schema.get("required", ())
        # An array that neither is required nor has a default collects *args: without one there is nothing to do.
        slot.needed = required or slot.many and isinstance(part, dict) and "default" not in part
        slot.empty = not required and isinstance(part, dict) and part.get("default", 0) is None
        slots.append(slot)
    return slots


def _lexical_slot(name: str, part: Any, root: Any, prepositions: Mapping[str, str]) -> Any:
    """Return what is known of one argument, from its schema and its help. Pure."""
    from types import SimpleNamespace

    leaves = _planner_leaves(part, root)
    many = bool(leaves) and all(leaf.get("type") == "array" for leaf in leaves)
    if many:
        leaves = [inner for leaf in leaves for inner in _planner_leaves(leaf.get("items", True), root)]
    kinds: set[str] = set()
    choices: dict[str, Any] = {}
    for leaf in leaves:
        literals = leaf.get("enum", [leaf["const"]] if "const" in leaf else None)
        kind = leaf.get("type")
        if literals is not None:
            choices.update((str(value), value) for value in literals if isinstance(value, (str, int, float)))
        elif kind in ("integer", "number", "boolean"):
            kinds.add(kind)
        elif kind == "string":
            kinds.update(_lexical_text_kinds(leaf, root))
    help_text = str(part.get("description", "")) if isinstance(part, dict) else ""
    words = _words_of(name)
    slot = SimpleNamespace(
        name=name, kinds=kinds, many=many, needed=False, judge=None, schema=part, root=root, choices={}, others=[],
        names=[*words, *(LEXICAL_NAME_WORDS[word] for word in words if word in LEXICAL_NAME_WORDS)], nouns=[],
        stems=frozenset(), ties=frozenset(), first=bool(LEXICAL_STARTS & set(words)),
    )
    alternatives, plain = _lexical_alternatives(help_text)
    slot.nouns = [word for word in _words_of(plain) if word not in WORDS_IDLE]
    slot.nouns += [word for kind in sorted(kinds) for word in LEXICAL_KIND_WORDS.get(kind, "").split()]
    slot.choices = _lexical_choices(choices, alternatives)
    slot.others = [phrase.split() for phrases in alternatives.values() for phrase in phrases] if not choices else []
    slot.name_stems = frozenset(map(_words_stem, slot.names)) - {"from", "to", "onli"}
    kin = _lexical_acts(WORDS_THINGS)
    slot.name_stems |= {other for stem in slot.name_stems for other in kin.get(stem, ())}
    nouns = frozenset(map(_words_stem, slot.nouns))
    slot.stems = slot.name_stems | nouns | {other for stem in nouns for other in kin.get(stem, ())}
    way = [word for word in words if word in LEXICAL_WAYS]
    slot.way = bool(way)  #: from something or to something: its preposition says more than any noun
    counts = ["many"] if "many" in slot.nouns else []
    slot.ties = frozenset(tie for word in way or words + counts for tie in prepositions.get(word, "").split())
    return slot


def _lexical_text_kinds(leaf: Mapping[str, Any], root: Any) -> set[str]:
    """Return the kinds of span that a text can be filled with; "word" for a pattern, "text" for anything. Pure."""
    if leaf.get("format") in LEXICAL_SPANS:
        return {LEXICAL_SPANS[leaf["format"]]}
    if "pattern" not in leaf:
        return {"text"}
    judge = Validator(leaf)
    if judge.is_valid("home") or judge.is_valid("HOME"):
        return {"word"}
    return {kind for kind, text in LEXICAL_PROBES if judge.is_valid(text)} or {"word"}


def _lexical_alternatives(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the phrases that a help text gives in parentheses after a word, and the text without them. Pure.

    >>> _lexical_alternatives("iso, unix (epoch, seconds since 1970)")[0]
    {'unix': ['epoch', 'seconds since 1970']}
    """
    found: dict[str, list[str]] = {}
    plain = ""
    while "(" in text and ")" in text[text.index("(") :]:
        before, _, rest = text.partition("(")
        inside, _, text = rest.partition(")")
        words = before.split()
        plain += before
        if words:
            phrases = inside.replace("'s", " 's").split(",")
            found[words[-1].lower()] = [" ".join(phrase.lower().split()) for phrase in phrases]
    return found, plain + text


def _lexical_choices(choices: Mapping[str, Any], alternatives: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return first word -> [(all words, value)] of every way to say a choice, but for what fits two of them. Pure."""
    ways: dict[tuple[str, ...], list[Any]] = {}
    acts = _lexical_acts(WORDS_THINGS) if len(choices) <= PLANNER_CHOICES_SHOWN else {}
    for text, value in choices.items():
        exact = tuple(text.lower().split())
        last = tuple(_words_of(text.rpartition("/")[2]))
        spellings = {exact, last, tuple(_words_of(text))}
        spellings.update(tuple(phrase.split()) for phrase in alternatives.get(text.lower(), ()))
        if len(last) == 1:
            spellings.update((other,) for other in acts.get(_words_stem(last[0]), ()))
        for words in spellings - {()}:
            ways.setdefault(words, []).append(value)
    index: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for words, values in ways.items():
        if len(values) == 1:
            index.setdefault(words[0], []).append((words, values[0]))
    for entries in index.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return index


def _lexical_split(known: Sequence[Any], tokens: list[Any]) -> list[Any]:
    """Return the tokens with "high-priority" as two words, where that is a choice and the name of its slot. Pure."""
    from types import SimpleNamespace

    slots = [slot for tool in known for slot in tool.slots if slot.choices]
    phrasal = known[0].phrasal if known else {}
    made = []
    gone: set[int] = set()
    for at, token in enumerate(tokens):
        for far in range(1, LEXICAL_NOUN_TOKENS):
            verb = phrasal.get(f"{_words_stem(token.low)} {_words_low(tokens, at + far)}")
            if verb and not any(token.stem in tool.strong for tool in known):  # "jot down", where jot is a command
                gone.add(at if verb == "remember" else at + far)
                kept = tokens[at + far if verb == "remember" else at]
                kept.low, kept.stem = verb, _words_stem(verb)
        if at in gone:
            continue
        if token.low == "what" and _words_low(tokens, at + 1) not in WORDS_IDLE | {""}:
            token.stem = "which"  # what tasks, as against what is
        left, dash, right = token.low.partition("-")
        if dash and any(left in slot.choices and _words_stem(right) in slot.name_stems for slot in slots):
            about, cut = token.__dict__, token.start + len(left)
            made.append(SimpleNamespace(**dict(about, text=left, low=left, stem=_words_stem(left), end=cut)))
            token = SimpleNamespace(**dict(about, text=right, low=right, stem=_words_stem(right), start=cut + 1))
        made.append(token)
    return made


# Clauses: a slot, a value, and the words that tie them


def _lexical_clauses(tool: Any, tokens: Sequence[Any], spans: Sequence[Any]) -> list[Any]:
    """Return every way to fill a slot from a part of the sentence, the surest first. Pure."""
    from types import SimpleNamespace

    found: list[Any] = []
    numeric = {span.first for span in spans if span.kind in ("int", "num")}
    said = {token.stem for token in tokens if not token.quoted}

    def offer(slot: Any, value: Any, first: int, end: int, strength: int = 0, lead: int = -1) -> None:
        """Add a clause; without a strength, by the words that stand around the value."""
        lead, stop = lead if lead >= 0 else first, end
        if not strength:
            lead, stop, strength = _lexical_tie(slot, tokens, first, end, bool(slot.name_stems & said))
            loose = LEXICAL_LOOSE - slot.ties - ({"from"} if strength >= LEXICAL_WAY else set())
            if tool.destructive and (strength < LEXICAL_NEAR and slot.way or any(
                    token.low in loose for token in tokens[max(lead - 1, 0) : first])):
                return  # "in", "on", "from": what is destroyed must be named plainly
        if tool.destructive and isinstance(value, str) and value[-1:] == "/":
            return  # a folder is more than a person thinks of
        if "path" in slot.kinds and isinstance(value, str):
            value = value.rstrip("/") or value
        fits = _lexical_fits(slot, value)
        if fits or strength >= LEXICAL_NOUN:
            found.append(SimpleNamespace(slot=slot, value=value if fits else TYPES_ABSENT, first=first, end=end,
                                         lead=lead, stop=stop, strength=strength))

    for slot in tool.slots:
        _lexical_offer_options(slot, tokens, offer)
        if "boolean" in slot.kinds:
            _lexical_offer_switch(slot, tokens, tool.acts, offer)
        if slot.choices:
            for value, first, end in _lexical_find_choices(slot, tokens):
                offer(slot, [value] if slot.many else value, first, end)
        if slot.many:
            _lexical_offer_numbers(slot, spans, tokens, offer)
        else:
            for span in spans:
                if _lexical_takes(slot, span):
                    offer(slot, span.value, span.first, span.end)
        if {"word", "text", "path", "email"} & slot.kinds:
            _lexical_offer_words(tool, slot, tokens, numeric, offer)
    places: dict[Any, set[str]] = {}
    for clause in found:
        places.setdefault((clause.first, clause.end, clause.strength), set()).add(clause.slot.name)
    for clause in found:  # what is tied as well to two slots is tied to none
        if clause.strength < LEXICAL_NAME and len(places[clause.first, clause.end, clause.strength]) > 1:
            clause.strength = LEXICAL_BARE
    found.sort(key=lambda clause: (-clause.strength, clause.first - clause.end, clause.first))
    return found


def _lexical_fits(slot: Any, value: Any) -> bool:
    """Tell whether a value is valid for a slot; its validator is made when it is first needed."""
    if slot.judge is None:
        schema = slot.schema
        if isinstance(schema, dict) and "$defs" in slot.root:
            schema = dict(schema, **{"$defs": slot.root["$defs"]})
        slot.judge = Validator(schema, assert_formats=True)
    return bool(slot.judge.is_valid(value))


def _lexical_takes(slot: Any, span: Any) -> bool:
    kind, kinds = span.kind, slot.kinds
    if kind in ("int", "num"):
        timed = bool({"date", "datetime", "time"} & kinds)  # a small number is no moment to anybody but a computer
        fits = "number" in kinds or kind == "int" and "integer" in kinds
        return fits and not (timed and abs(span.value) < LEXICAL_EPOCH_MIN)
    return kind in kinds


def _lexical_tie(slot: Any, tokens: Sequence[Any], first: int, end: int, mentioned: bool) -> tuple[int, int, int]:
    """Return where a clause begins and ends with the words that tie a value to its slot, and how sure the tie is.

    From nothing to its name beside the value: see LEXICAL_BARE and what follows it.
    """
    lead, stop, strength = first, end, LEXICAL_SAID if mentioned else LEXICAL_BARE
    after = tokens[end] if end < len(tokens) else None
    if after is not None and not after.quoted and after.stem in slot.stems:
        stop, strength = end + 1, LEXICAL_NOUN
        stop += stop < len(tokens) and tokens[stop].stem in slot.stems
    close = LEXICAL_WAY if slot.way else LEXICAL_NEAR
    at = first - 1
    while at >= 0 and at >= first - LEXICAL_TIE_TOKENS and not tokens[at].quoted:
        token = tokens[at]
        if token.low in slot.ties and strength < close:
            lead, strength = at, close
        if token.stem in slot.stems and "many" in slot.nouns and tokens[first - 1].low not in ("=", ":", "to", "at"):
            break  # a picture of two dogs
        if token.stem in slot.stems:
            named = LEXICAL_NAME if token.stem in slot.name_stems else LEXICAL_NOUN
            if named > strength:
                lead, strength = at, named
            break
        if token.low not in LEXICAL_TIES and token.low not in slot.ties:
            break
        at -= 1
    while strength >= LEXICAL_NOUN and lead > 0 and tokens[lead - 1].low in slot.ties | LEXICAL_BEFORE:
        lead -= 1
    return lead, stop, strength


def _lexical_offer_options(slot: Any, tokens: Sequence[Any], offer: Callable[..., None]) -> None:
    """Offer --name value, --no-name, name=value and name: value, as typed by somebody who knows the program."""
    plain = slot.name.lower().replace("_", "-")
    gathered: list[Any] = []
    start = stop = -1
    for at, token in enumerate(tokens):
        if token.quoted or token.low.lstrip("-").replace("_", "-") not in (plain, "no-" + plain):
            continue
        dashed = token.low[:2] == "--"
        equals = _words_low(tokens, at + 1) == "="
        if "boolean" in slot.kinds and dashed and not equals:
            offer(slot, not token.low[2:].startswith("no-"), at, at + 1, LEXICAL_OPTION)
        elif (dashed or equals) and at + 1 + equals < len(tokens):
            start, stop = (at if start < 0 else start), at + 2 + equals
            word = tokens[at + 1 + equals]
            parts = word.text.split(",") if slot.many and not word.quoted else [word.text]
            gathered += [_lexical_typed(slot, part, word.quoted) for part in parts]
            while slot.many and _words_low(tokens, stop) == "," and stop + 1 < len(tokens):
                gathered.append(_lexical_typed(slot, tokens[stop + 1].text, tokens[stop + 1].quoted))
                stop += 2
            if not slot.many:
                offer(slot, gathered[-1], at, stop, LEXICAL_OPTION)
    if slot.many and gathered:
        offer(slot, gathered, start, stop, LEXICAL_OPTION)


def _lexical_typed(slot: Any, text: str, quoted: bool) -> Any:
    """Return the value of an option, read as its slot wants it. Pure."""
    if text in slot.choices and not quoted:
        return slot.choices[text][0][1]
    for kind in ("integer", "number", "boolean") if not quoted else ():
        if kind in slot.kinds:
            try:
                return _types_read_text({"type": kind}, text, True)
            except _TypesFault:
                continue
    return text


def _lexical_offer_switch(
    slot: Any, tokens: Sequence[Any], acts: Mapping[str, frozenset[str]], offer: Callable[..., None]
) -> None:
    """Offer true for a boolean that is named, false where no, not or without stands before it."""
    name = [_words_stem(word) for word in slot.name.lower().replace("-", "_").split("_")]
    near = acts.get(name[0], frozenset()) if len(name) == 1 else frozenset()
    stems = [token.stem for token in tokens]
    lows = [token.low for token in tokens]
    for at in range(len(tokens)):
        length = 0
        if stems[at : at + len(name)] == name or stems[at] in near:
            length = len(name)
        elif len(name) > 1 and sorted(set(stems[at : at + len(name) + 1]) & set(name)) == sorted(name):
            length = len(name) + 1  # only the date
        for phrase in slot.others:
            if lows[at : at + len(phrase)] == phrase and _words_low(tokens, at + len(phrase)) not in ("and", "or"):
                length = max(length, len(phrase))
        if length:
            before = next((lows[place] for place in range(at - 1, max(at - 3, -1), -1)
                           if lows[place] not in ("the", "any")), "")
            negated = before in ("no", "not", "without")
            offer(slot, not negated, at - negated, at + length, LEXICAL_NAME)


def _lexical_find_choices(slot: Any, tokens: Sequence[Any]) -> list[tuple[Any, int, int]]:
    """Return the choices that a sentence names, with their places; "all" only where nothing else is named."""
    found, at = [], 0
    while at < len(tokens):
        token, step = tokens[at], 1
        entries = slot.choices.get(token.low if not token.quoted else token.text.lower(), ())
        entries = entries or (slot.choices.get(token.stem, ()) if not token.quoted else ())
        if tokens[min(at + 1, len(tokens) - 1)].low.isdigit():
            entries = ()  # "the timestamp 1750000000" names the number, "in timestamp form" the choice
        for words, value in entries:
            if len(words) == 1 or [_words_low(tokens, at + more) for more in range(len(words))] == list(words):
                found.append((value, at, at + len(words)))
                step = len(words)
                break
        at += step
    better = [entry for entry in found if tokens[entry[1]].low not in ("all", "everything", "every")]
    every = slot.choices.get("all")
    if every and better and (len({_json_key(value) for value, _, _ in better}) > 1 or len(better) < len(found) and any(
            token.low in LEXICAL_ADDING for token in tokens)):
        return [(every[0][1], min(found[0][1], better[0][1]), max(found[-1][2], better[-1][2]))]
    return better or found


def _lexical_offer_numbers(slot: Any, spans: Sequence[Any], tokens: Sequence[Any], offer: Callable[..., None]) -> None:
    """Offer runs of typed values with commas and "and" between them: tasks 1, 2 and 5."""
    fitting = [span for span in spans if _lexical_takes(slot, span)]
    at = 0
    while at < len(fitting):
        run = [fitting[at]]
        while at + 1 < len(fitting):
            between = [_words_low(tokens, place) for place in range(run[-1].end, fitting[at + 1].first)]
            if not all(word in (",", "and", "&") or word in slot.nouns or _words_stem(word) in slot.stems
                       for word in between):
                break
            at += 1
            run.append(fitting[at])
        offer(slot, [span.value for span in run], run[0].first, run[-1].end)
        at += 1


def _lexical_offer_words(
    tool: Any, slot: Any, tokens: Sequence[Any], numeric: set[int], offer: Callable[..., None]
) -> None:
    """Offer words and quoted texts that follow the slot's name, or a preposition of a path: tagged home and garden."""
    cues = slot.name_stems | {_words_stem(tie) for tie in slot.ties if tie not in LEXICAL_TIES | {"like"}}
    cues |= {"#"} if slot.name_stems & tool.acts["tag"] else set()
    cues |= {"for", "under"} if tool.readonly and "word" in slot.kinds else set()
    cues |= {other for stem in slot.name_stems for other in tool.acts.get(stem, ())}
    path = bool({"path", "email"} & slot.kinds)
    for at, token in enumerate(tokens):
        if token.quoted:
            if slot.kinds & {"text", "path"} and not slot.many:
                offer(slot, token.text, at, at + 1)
            continue
        cued = token.stem in cues or path and token.low in slot.ties
        if not cued or tool.destructive or "text" in slot.kinds and not slot.many:
            continue
        start = at + 1
        while _words_low(tokens, start) in LEXICAL_LISTING:
            start += 1
        values, end = _lexical_list(tool, slot, tokens, start, numeric)
        if values and (slot.many or len(values) == 1) and not (token.low == "#" and values[0].isdigit()):
            strength = LEXICAL_NAME if token.stem in cues else LEXICAL_NEAR
            offer(slot, values if slot.many else values[0], start, end, strength, at)


def _lexical_list(
    tool: Any, slot: Any, tokens: Sequence[Any], start: int, numeric: set[int]
) -> tuple[list[str], int]:
    """Return the words that a place of the sentence lists for a slot, and the end of the list."""
    values: list[str] = []
    at, end = start, start
    counts = any("integer" in other.kinds for other in tool.slots)
    while at < len(tokens):
        token = tokens[at]
        known = token.stem in tool.words and not token.quoted
        if token.mark or token.low in WORDS_IDLE - {"a", "i"} or token.low[:2] == "--" or known or (
                counts and at in numeric) or not _lexical_fits(slot, [token.text] if slot.many else token.text):
            break
        values.append(token.text)
        at = end = at + 1
        if not slot.many:
            break
        while _words_low(tokens, at) in (",", "and", "&"):
            at += 1
        if at == end:
            break
    return values, end


# Reading a sentence as one command


def _lexical_read(tool: Any, said: Any) -> Any:
    """Return the reading of a sentence as a call of one tool, None where it is no such call. Pure.

    said: see _lexical_hear. A reading in which only a required value is missing counts, as a rival of the others.
    """
    tokens = said.tokens
    if said.asks and not tool.readonly:
        return None
    clauses = _lexical_clauses(tool, tokens, said.spans)
    texts = [slot for slot in tool.slots if "text" in slot.kinds and not slot.many]
    needed = [slot for slot in texts if slot.needed]
    if len(needed) > 1:
        return None
    reading = None
    if not needed or any(clause.slot is needed[0] and clause.strength == LEXICAL_OPTION for clause in clauses):
        reading = _lexical_settle(tool, said, clauses, None, (0, 0))
    for slot in (needed or texts) if reading is None else ():
        place = _lexical_text(tool, slot, tokens, clauses)
        if place is not None:
            reading = _lexical_settle(tool, said, clauses, slot, place)
        if reading is not None:
            break
    return reading if reading is not None or not needed else _lexical_settle(tool, said, clauses, None, (0, 0))


def _lexical_settle(tool: Any, said: Any, clauses: Sequence[Any], text: Any, place: tuple[int, int]) -> Any:
    """Return the reading with the surest clauses taken and every other word explained, else None. Pure.

    text: the slot of free text, which the tokens of place fill.
    """
    from types import SimpleNamespace

    tokens, args, taken = said.tokens, {}, set(range(*place))
    if text is not None:
        args[text.name] = _lexical_source(tokens, *place)
        if not _lexical_fits(text, args[text.name]):
            return None
    heard = {token.stem for at, token in enumerate(tokens) if not token.quoted and not place[0] <= at < place[1]}
    used = _lexical_choose(tool, clauses, args, taken, heard)
    if used is None:
        return None
    for clause in used:
        taken.update(range(clause.lead, clause.stop))
    lead = place[0] - 1
    while text is not None and lead > 0 and tokens[lead].low in LEXICAL_TEXT_LEADS | LEXICAL_HAVE:
        taken.add(lead)
        lead -= 1
    rest = [at for at in range(len(tokens)) if at not in taken]
    rest = _lexical_fill_tail(tool, tokens, rest, args, heard)
    cost = _lexical_cost(tool, said, rest, len(used) < 2)
    most = (len(used) + (text is not None)) * (LEXICAL_UNKNOWN if tool.readonly else LEXICAL_UNKNOWN_CHANGING)
    if cost > most or _lexical_dangles(tool, tokens, rest, args):
        return None
    if not _lexical_acts_on(tool, tokens, used, heard, place):
        return None
    if tool.destructive and not _lexical_is_sure(tool, tokens, args, text, place):
        return None
    _lexical_fill_today(tool, said, used, args)
    borrowed = _lexical_borrow(tool, args, said.borrow)
    score = sum(tool.words.get(stem, 0) for stem in heard) + sum(LEXICAL_ADDS[each.strength] for each in used)
    missing = _lexical_missing(tool, tokens, {**args, **borrowed})
    score += LEXICAL_TEXT_ADDS * (text is not None) + bool(borrowed) - cost * LEXICAL_UNKNOWN_TAKES
    return SimpleNamespace(tool=tool, args=args, score=score, borrowed=borrowed, place=place, missing=missing,
                           used=len(used), cost=cost)


def _lexical_missing(tool: Any, tokens: Sequence[Any], args: Mapping[str, Any]) -> str:
    """Return why a call is not complete, "" when it is: "named" where the sentence speaks of what is missing."""
    missing = [slot for slot in tool.slots if slot.needed and slot.name not in args]
    if missing:
        lows = {token.low for token in tokens if not token.quoted}
        return "named" if any(word in lows for slot in missing for word in [*slot.names, *slot.nouns]) else "silent"
    changes = [slot for slot in tool.slots if slot.empty]
    if not tool.readonly and len(changes) > 1 and not any(slot.name in args for slot in changes):
        return "named"  # to change nothing is no change
    naming = any(token.low in LEXICAL_NAMING for token in tokens if not token.quoted)
    named = [slot for slot in tool.slots if slot.ties & LEXICAL_NAMING]
    return "named" if naming and named and not any(slot.name in args for slot in named) else ""


def _lexical_fill_today(tool: Any, said: Any, used: Sequence[Any], args: dict[str, Any]) -> None:
    """Fill the open end of a stretch of time: since a day means up to today, until a day means from today."""
    timed = [slot for slot in tool.slots if "date" in slot.kinds and slot.needed]
    given = [slot for slot in timed if slot.name in args]
    if len(timed) != 2 or len(given) != 1:
        return
    lows = {token.low for token in said.tokens}
    word = ("since",) if given[0].first else ("until", "till")
    if lows & set(word):
        other = timed[1] if timed[0] is given[0] else timed[0]
        args[other.name] = said.today


def _lexical_choose(
    tool: Any, clauses: Sequence[Any], args: dict[str, Any], taken: set[int], heard: set[str]
) -> list[Any] | None:
    """Take the surest clauses that do not overlap, into args; None where one contradicts another or is invalid."""
    used: list[Any] = []
    bare: list[Any] = []
    for clause in clauses:
        span = set(range(clause.first, clause.end))
        if clause.strength < LEXICAL_SAID:
            bare.append(clause)
            continue
        if clause.slot.name in args or span & taken:
            continue
        if clause.value is TYPES_ABSENT:
            return None
        args[clause.slot.name] = clause.value
        taken |= span
        used.append(clause)
    # What nothing ties to a slot goes by order: first to the slots that begin something, then as declared.
    bare.sort(key=lambda clause: clause.first)
    places = {clause.first for clause in bare
              if clause.slot.name not in args and not set(range(clause.first, clause.end)) & taken}
    free = {clause.slot.name for clause in bare if clause.slot.name not in args}
    enough = len(places) >= len(free)
    order = [(not slot.first, not slot.needed) if enough else (not slot.needed, not slot.first) for slot in tool.slots]
    for slot in [tool.slots[at] for at in sorted(range(len(order)), key=lambda at: (order[at], at))]:
        moments = [each.first for each in bare if not each.slot.choices and each.slot is not slot]
        near = slot.first and slot.choices and moments
        for clause in sorted(bare, key=lambda each: abs(each.first - moments[0] - 1)) if near else bare:
            if clause.slot is slot and slot.name not in args and not set(range(clause.first, clause.end)) & taken:
                loose = not slot.needed and "path" in slot.kinds and not heard & tool.strong
                if clause.value is TYPES_ABSENT or loose:
                    continue
                args[slot.name] = clause.value
                taken |= set(range(clause.first, clause.end))
                used.append(clause)
    torn = any(clause.slot.choices and not clause.slot.many and clause.slot.name in args and not taken & set(
        range(clause.first, clause.end)) and clause.value != args[clause.slot.name] for clause in clauses)
    return None if torn else used


def _lexical_fill_tail(
    tool: Any, tokens: Sequence[Any], rest: list[int], args: dict[str, Any], heard: set[str]
) -> list[int]:
    """Fill the one needed list of words from what is left over, if that is a list and nothing else."""
    open_lists = [slot for slot in tool.slots if slot.needed and slot.many and slot.name not in args]
    wanted = [slot for slot in open_lists if "word" in slot.kinds]
    left = [at for at in rest if not _lexical_explains(tool, tokens, at)]
    numeric = {at for at in left if _words_number(tokens, at)}
    if len(wanted) != 1 or not left or not heard & tool.strong:
        return rest
    values, end = _lexical_list(tool, wanted[0], tokens, left[0], numeric)
    if values and left[-1] < end:
        args[wanted[0].name] = values
        return [at for at in rest if not left[0] <= at < end]
    return rest


def _lexical_explains(tool: Any, tokens: Sequence[Any], at: int) -> bool:
    """Tell whether a word that fills no slot carries no meaning, or is one of the tool's own."""
    token = tokens[at]
    if token.quoted:
        return False
    if tool.destructive and token.low in LEXICAL_LOOSE and token.stem not in tool.words:
        after = tokens[at + 1].stem if at + 1 < len(tokens) else ""  # "for good", but not "from the list"
        return token.low != "about" and after in tool.words
    if token.low in LEXICAL_CONDITIONS:
        return bool(tool.readonly)
    if token.mark or token.low in WORDS_IDLE or token.stem in tool.words or token.stem in tool.near:
        return True
    before = _words_low(tokens, at - 1)
    if not tool.destructive and (token.low in LEXICAL_REQUESTS or token.low in LEXICAL_LIGHT and (
            not tool.readonly or token.low in ("make", "have"))):
        return True
    return token.low in ("list", "lists") and before in ("my", "the", "to-do", "todo")


def _lexical_cost(tool: Any, said: Any, rest: Sequence[int], few: bool) -> float:
    """Return how many words nothing explains, those that mean something else twice; too many where one may turn all."""
    tokens, cost, known = said.tokens, 0.0, said.asks
    starts = {span.first for span in said.spans}
    for at in rest:
        token = tokens[at]
        if _lexical_explains(tool, tokens, at):
            known = known or not token.mark and token.low not in WORDS_IDLE
            continue
        before, after = _words_low(tokens, at - 1), _words_low(tokens, at + 1)
        counted = (before == "many" or before in ("which", "what") and at < LEXICAL_NOUN_TOKENS - 1) and not any(
            after in slot.choices for slot in tool.slots)  # how many weeks, but not how many full hours
        opens = not known and all(each.mark or each.low in WORDS_IDLE for each in tokens[:at])
        other = after in LEXICAL_ARTICLES and at + 2 in rest and not _lexical_explains(tool, tokens, at + 2)
        object_ = known and not cost and few and before in LEXICAL_ARTICLES
        turned = token.low in LEXICAL_TURNING or token.stem in tool.changing or token.text[:2] == "--"
        valued = token.quoted or _words_number(tokens, at) or at in starts
        if tool.destructive or counted or turned or valued or not said.asks and (opens and other or object_):
            return WORDS_TOKENS  # the last: an order to do something else, to book a flight, to show a map
        if token.low in LEXICAL_LOOSE and tool.readonly:
            continue
        known = True
        cost += 2 if token.stem in tool.acts and token.stem not in tool.spoken else 1
        cost += 2 if opens and before not in LEXICAL_ARTICLES else 0
    return cost


def _lexical_dangles(tool: Any, tokens: Sequence[Any], rest: Sequence[int], args: Mapping[str, Any]) -> bool:
    """Tell whether a preposition of an empty slot leads to a word that fills nothing: list what is in photos."""
    empty = [slot for slot in tool.slots if slot.name not in args and not slot.needed]
    known = tool.strong | tool.verbs | tool.nouns
    if any(tokens[at].stem in slot.name_stems - known for at in rest for slot in empty):
        return True  # "list done tag" names a slot and gives it nothing
    empty = [slot for slot in empty if slot.kinds & {"path", "text", "word"} or slot.choices]
    return any(tokens[at].low in slot.ties and at + 1 in rest and tokens[at + 1].low not in WORDS_IDLE
               and not tokens[at + 1].mark and tokens[at].low != "to" for at in rest for slot in empty)


def _lexical_acts_on(
    tool: Any, tokens: Sequence[Any], used: Sequence[Any], heard: set[str], place: tuple[int, int]
) -> bool:
    """Tell whether the sentence really asks for what a tool does, more plainly where it changes or destroys."""
    if tool.readonly:
        sure = any(clause.slot.needed or clause.strength >= LEXICAL_NAME for clause in used)
        return sure or bool(heard & tool.words.keys())
    if tool.destructive:  # an order, and no report that something is deleted
        first = [token for token in tokens if not token.mark and token.low not in WORDS_IDLE | {"get", "you"}][:1]
        return any(token.stem in tool.near and token.low[-2:] != "ed" for token in first)
    if place[1] and (heard & tool.nouns or _lexical_contained(tool, tokens)):
        return True
    named = any(clause.slot.empty and clause.strength >= LEXICAL_NOUN for clause in used)
    if named and any(token.low in LEXICAL_SHALL for token in tokens):
        return True  # the due date of 4 should be May 1
    light = any(token.low in LEXICAL_LIGHT for token in tokens[: place[0] or None])
    return bool(heard & tool.near) or light and len(used) >= 2 and any(
        clause.strength >= LEXICAL_SAID for clause in used)


def _lexical_is_sure(
    tool: Any, tokens: Sequence[Any], args: Mapping[str, Any], text: Any, place: tuple[int, int]
) -> bool:
    """Tell whether a sentence that destroys is a plain order of which nothing was left out.

    It begins with its verb, but for polite words; each choice that it names is taken, and no slot is named two; a free
    text without quotes is one word, since more may hold a condition or a second thought.
    """
    verb = next((at for at, token in enumerate(tokens) if token.stem in tool.near), len(tokens))
    lead = [token.low for token in tokens[:verb] if not token.mark or token.low == "!"]
    if not WORDS_POLITE.issuperset(lead) or lead and lead[-1] not in WORDS_POLITE_LAST:
        return False
    for slot in tool.slots:
        named = {_json_key(value) for value, _, _ in _lexical_find_choices(slot, tokens)}
        given = args.get(slot.name, ())
        taken = {_json_key(value) for value in (given if isinstance(given, list) else [given])}
        if named and (not named <= taken or len(named) > 1 and not slot.many):
            return False
    return text is None or place[1] - place[0] <= 1 or tokens[place[0]].quoted


def _lexical_source(tokens: Sequence[Any], first: int, end: int) -> str:
    """Return the user's own text of some tokens; of a single quoted one, what stands in the quotes."""
    if end - first == 1:
        return str(tokens[first].text)
    return " ".join(tokens[first].whole[tokens[first].start : tokens[end - 1].end].split())


def _lexical_borrow(tool: Any, args: Mapping[str, Any], borrow: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return references for needed slots without a value, from fields of an earlier result that are the same thing."""
    made: dict[str, Any] = {}
    for slot in tool.slots if borrow else ():
        if not slot.needed or slot.name in args:
            continue
        item = slot.schema.get("items", slot.schema) if slot.many else slot.schema
        for name, part in (borrow or {}).items():
            alike = isinstance(part, dict) and part.get("type") == item.get("type") and part.get("type") is not None
            same = part.get("description") and part["description"] == item.get("description")
            if name == slot.name or alike and same:
                made[slot.name] = [f"$result.{name}"] if slot.many else f"$result.{name}"
                break
    return made


# Free text: the words between those that begin the sentence and the clauses that end it


def _lexical_text(tool: Any, slot: Any, tokens: Sequence[Any], clauses: Sequence[Any]) -> tuple[int, int] | None:
    """Return which tokens are the free text of a slot, None where there is none for sure. Pure."""
    quoted = [at for at, token in enumerate(tokens) if token.quoted]
    if quoted:
        others = [clause for clause in clauses if clause.slot is not slot and clause.strength >= LEXICAL_NEAR]
        own = [at for at in quoted if not any(clause.first <= at < clause.end for clause in others)]
        if len(own) == 1 and (slot.needed or _lexical_is_named(tool, slot, tokens, own[0])):
            return (own[0], own[0] + 1)
        return None
    end = _lexical_text_end(tool, slot, tokens, clauses)
    if slot.needed:
        start = _lexical_text_start(tool, slot, tokens, clauses)
    else:
        start = _lexical_query_start(tool, slot, tokens, clauses, end)
    if start is None or not 0 < end - start <= (LEXICAL_TEXT_TOKENS if slot.needed else LEXICAL_QUERY_TOKENS):
        if start is None or not slot.ties & LEXICAL_NAMING or not 0 < end - start <= LEXICAL_TEXT_TOKENS:
            return None
    inside = tokens[start:end]
    if any(token.quoted or token.low[:2] == "--" for token in inside):
        return None
    unfilled = [other for other in tool.slots if other is not slot and not any(
        clause.slot is other and (clause.first < start or clause.end > end) for clause in clauses)]
    if any(token.stem in other.name_stems for token in inside for other in unfilled):
        return None  # "priority urgent" is no part of a title
    if any(clause.slot is not slot and start <= clause.first and clause.end <= end and clause.strength >= (
            LEXICAL_NEAR if "date" in clause.slot.kinds else LEXICAL_NOUN) for clause in clauses):
        return None
    lows = [token.low for token in inside]
    said = " ".join(lows) + " "
    if LEXICAL_BREAKS & set(lows) or any(f" {words} " in said for words in LEXICAL_SECOND_THOUGHTS):
        return None  # another sentence, or a second thought
    if inside[0].text in LEXICAL_VAGUE | LEXICAL_LOOSE | {"over"}:
        return None  # "draw over a.png"
    if "and" in lows and LEXICAL_POINTERS & set(lows[lows.index("and") :]):
        return None  # "and send it to Bob" is no part of a title
    return (start, end) if any(low.strip("0123456789#") and not token.mark and low not in WORDS_IDLE | LEXICAL_VAGUE
                               for low, token in zip(lows, inside)) else None


def _lexical_is_named(tool: Any, slot: Any, tokens: Sequence[Any], end: int) -> bool:
    """Tell whether the words before a place name an optional text, or the act of naming."""
    before = {token.low for token in tokens[:end]} | {token.stem for token in tokens[:end]}
    return bool(before & (slot.name_stems | LEXICAL_NAMING | slot.ties))


def _lexical_text_end(tool: Any, slot: Any, tokens: Sequence[Any], clauses: Sequence[Any]) -> int:
    """Return where a free text ends: before the clauses, marks and courtesies that end the sentence."""
    end, moving = len(tokens), True
    filled: set[str] = set()
    while moving and end > 0:
        moving = False
        while end > 0 and tokens[end - 1].low in (",", ";", "?", "!", ".", "and", "with", ":"):
            end -= 1
        for tail in LEXICAL_TAILS:
            words = tail.split()
            if [token.low for token in tokens[max(end - len(words), 0) : end]] == words:
                end, moving = end - len(words), True
        if end > 3 and tokens[end - 1].stem in tool.nouns and tokens[end - 3].low == "to" and (
                tokens[end - 2].low in ("my", "the", "our")):
            end, moving = end - 3, True  # to my tasks
        for clause in clauses:
            sure = clause.strength >= LEXICAL_NEAR or _lexical_is_soon(clause, tokens)
            if clause.stop == end and clause.slot is not slot and sure and clause.slot.name not in filled and (
                    clause.lead > 0):
                filled.add(clause.slot.name)
                end, moving = clause.lead, True
                break
    return end


def _lexical_is_soon(clause: Any, tokens: Sequence[Any]) -> bool:
    """Tell whether a clause is a relative date that nothing ties: call mom tomorrow."""
    free = _words_low(tokens, clause.first - 1) not in LEXICAL_TIES
    return "date" in clause.slot.kinds and free


def _lexical_text_start(tool: Any, slot: Any, tokens: Sequence[Any], clauses: Sequence[Any]) -> int | None:
    """Return where a required free text begins: after the verb, what it makes, and clauses that stand between."""
    at = 0
    begins = tool.near | tool.nouns
    while at < len(tokens) and tokens[at].stem not in begins and (
            not tokens[at].quoted and at < LEXICAL_PRELUDE_TOKENS and (tokens[at].low in WORDS_IDLE or not (
                tokens[at].stem in tool.acts or tokens[at].stem in tool.changing))):
        at += 1
    if at == len(tokens) or tokens[at].quoted or tokens[at].stem not in begins:
        return None
    verb = tokens[at]
    titled = at + 1 < len(tokens) and (tokens[at + 1].quoted or tokens[at + 1].low == ":") or _words_low(
        tokens, at - 1) == "new"
    if verb.stem not in tool.near and not titled and not any(token.low in LEXICAL_WISHES for token in tokens[:at]):
        return None
    counted = at and (_words_low(tokens, at - 1) in ("a", "an", "the") or _words_number(tokens, at - 1))
    noun = counted and verb.low[-3:] == "ing" or verb.stem in tool.nouns and (
        counted or verb.stem not in tool.near or verb.stem in tool.strong)  # I'd like a picture of a whale
    at += 0 if noun else 1
    at += _words_low(tokens, at) in ("down", "up", "out")
    reminded = _words_low(tokens, at) in ("me", "us")
    at += reminded
    start, made = _lexical_made(tool, tokens, clauses, at)
    making = verb.low in LEXICAL_MAKING
    own = {_words_stem(word) for word in _words_of(tool.name)}
    made = made or _lexical_contained(tool, tokens)
    if not made and (noun or making and verb.stem not in own or verb.low == "remind" and not reminded):
        return None
    if not made and making and _words_low(tokens, at) in LEXICAL_ARTICLES and (
            _words_low(tokens, at + 1) != "following"):
        return None  # "create a folder": something else than what the command makes
    many = not made and start < len(tokens) and _words_number(tokens, start)  # how many, or part of the text?
    another = start + 1 < len(tokens) and tokens[start].stem in tool.things and _words_number(tokens, start + 1)
    return None if many or another else start  # "job 3" is something that exists


def _lexical_contained(tool: Any, tokens: Sequence[Any]) -> bool:
    """Tell whether a sentence says that something goes on the list, or among what the tool makes."""
    lows = " ".join(token.low for token in tokens)
    return any(tail in lows for tail in LEXICAL_TAILS if "list" in tail)


def _lexical_made(tool: Any, tokens: Sequence[Any], clauses: Sequence[Any], at: int) -> tuple[int, bool]:
    """Return where the text begins after "a new task called", and whether such a noun stands there."""
    start, noun = at, False
    place = at
    while place < len(tokens) and place <= at + LEXICAL_NOUN_TOKENS:
        token = tokens[place]
        clause = next((clause for clause in clauses if clause.lead == place and clause.strength >= LEXICAL_NOUN), None)
        if token.quoted:
            break
        if clause is not None and clause.stop > place:
            start = place = clause.stop
            noun = noun or tokens[place - 1].stem in tool.nouns | tool.strong
        elif token.stem in tool.nouns | tool.strong and token.low not in LEXICAL_ARTICLES - {"new"}:
            start = place = place + 1
            noun = noun or token.low != "new"
        elif token.low in LEXICAL_ARTICLES and not noun:
            place += 1
        else:
            break
    for words in [tail.split() for tail in LEXICAL_TAILS if "list" in tail] if noun else ():
        if [_words_low(tokens, start + more) for more in range(len(words))] == words:
            start += len(words)
    leads = LEXICAL_TEXT_LEADS if noun else frozenset((":", "=", "to", "that"))
    while start < len(tokens) and not tokens[start].quoted and (tokens[start].low in leads or (
            tokens[start].low in ("for", "me") and _words_low(tokens, start + 1) in ("me", ":", "to", "us"))):
        start += 1
    if [_words_low(tokens, start), _words_low(tokens, start + 1)] == ["the", "following"]:
        start += 2
        start += _words_low(tokens, start) == ":"
    if _words_low(tokens, start) == "i" and _words_low(tokens, start + 1) in LEXICAL_HAVE and (
            _words_low(tokens, start + 2) == "to"):
        start += 3
    return start, noun


def _lexical_query_start(
    tool: Any, slot: Any, tokens: Sequence[Any], clauses: Sequence[Any], end: int
) -> int | None:
    """Return where an optional free text begins: after a preposition of its slot, where all before is explained."""
    if not any(token.stem in tool.strong for token in tokens[:end] if not token.quoted):
        return None
    terse = tokens[0].low == tool.name.lower() and end > 1  # "zones asia", as on a command line
    if terse and not any(_lexical_explains(tool, tokens, at) for at in range(1, end)):
        return 1
    for at in range(1, end):
        token = tokens[at]
        if token.quoted or token.low not in slot.ties | {":", "=", "to", "as"}:
            continue
        if token.low not in slot.ties and not _lexical_is_named(tool, slot, tokens, at):
            continue
        inside = [tokens[place] for place in range(at + 1, end)]
        known = [word for word in inside
                 if word.low in slot.ties | WORDS_IDLE or word.stem in tool.words or word.mark]
        if slot.ties & LEXICAL_NAMING and slot.empty or inside and not known:
            return at + 1
    return None


# Choosing


def _lexical_plan(known: Sequence[Any], tokens: Sequence[Any], now: float) -> list[dict[str, Any]]:
    """Return the steps of the plan that a sentence plainly asks for, else []. Pure."""
    strong = {word for tool in known for word in _words_of(tool.name)}
    about = _lexical_is_about(tokens)
    if about and not _lexical_opening(tokens).startswith(LEXICAL_DATA):
        return []
    firm, loose = _lexical_cuts(known, tokens)
    reading = _lexical_best(known, _lexical_hear(tokens, now, None))
    start, end = reading.place if reading is not None else (0, 0)
    if _lexical_forbids([*tokens[:start], *tokens[end:]], strong):
        return []
    if about and (reading is None or not reading.tool.readonly or not reading.used):
        return []
    torn = reading is None or firm and not reading.tool.readonly or any(
        _lexical_is_torn(reading, tokens, left, right) for left, right in loose)
    for left, right in firm or loose if len(firm) < 2 and (torn or reading.cost) else ():
        steps = _lexical_pair(known, tokens[:left], tokens[right:], now, bool(firm), not torn)
        if steps:
            return steps
    if torn:
        return []
    return [{"tool": reading.tool.name, "args": _plan_escape(reading.args)}]


def _lexical_is_torn(reading: Any, tokens: Sequence[Any], left: int, right: int) -> bool:
    """Tell whether what follows an "and" is an act of its own, which a reading has only swallowed."""
    if reading.tool.readonly:
        return False
    inside = reading.place[0] <= left < reading.place[1]
    return inside or tokens[left].low == "and" and tokens[right].stem not in reading.tool.words


def _lexical_forbids(tokens: Sequence[Any], strong: set[str]) -> bool:
    """Tell whether a sentence says not to do something; quoted words say nothing."""
    return any(not token.quoted and token.low in LEXICAL_NEGATIONS and token.low not in strong for token in tokens)


def _lexical_opening(tokens: Sequence[Any]) -> str:
    """Return the first words of a sentence after any greeting, each with a blank after it. Pure."""
    at = 0
    while at < len(tokens) and (tokens[at].mark or tokens[at].low in LEXICAL_GREETINGS):
        at += 1
    return "".join(token.low + " " for token in tokens[at : at + LEXICAL_NOUN_TOKENS])


def _lexical_is_about(tokens: Sequence[Any]) -> bool:
    """Tell whether a sentence asks about the program, or what should be done."""
    text = _lexical_opening(tokens)
    about = any(text.startswith(phrase + " ") for phrase in LEXICAL_ABOUT)
    return about and not text.startswith(LEXICAL_ABOUT_MINE)


def _lexical_asks(tokens: Sequence[Any]) -> bool:
    """Tell whether a sentence is a question that wants an answer, not an act in the form of a question."""
    text = _lexical_opening(tokens)
    wants = any(text.startswith(phrase + " ") for phrase in LEXICAL_WANTS)
    starts = [at for at in range(len(tokens)) if not at or tokens[at - 1].mark]
    wants = wants or text.partition(" ")[0] in LEXICAL_MODALS
    return not wants and (tokens[-1].low == "?" or any(tokens[at].low in LEXICAL_QUESTIONS for at in starts))


def _lexical_cuts(known: Sequence[Any], tokens: Sequence[Any]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return where a sentence may fall into two: at "then", ";" and full stops, and before "and" with a verb."""
    firm: list[tuple[int, int]] = []
    loose: list[tuple[int, int]] = []
    for at in range(1, len(tokens) - 1):
        low = tokens[at].low
        left = at
        right = at + 1
        while _words_low(tokens, right) in ("also", ",", "please", "then"):
            right += 1
        acts = right < len(tokens) and (
            tokens[right].low in LEXICAL_LIGHT | LEXICAL_REQUESTS | LEXICAL_QUESTIONS or any(
                tokens[right].stem in tool.near for tool in known))
        known_already = bool(firm) and firm[-1][1] == right
        if (low == "then" or low in (";", ".") and acts) and right < len(tokens) and not known_already:
            firm.append((left, right))
        elif low in ("and", ",") and _words_low(tokens, at + 1) != "then" and acts:
            loose.append((left, right))
    return firm, loose


def _lexical_pair(
    known: Sequence[Any], left: Sequence[Any], right: Sequence[Any], now: float, firm: bool, strict: bool
) -> list[dict[str, Any]]:
    """Return two steps, the second perhaps with the result of the first; [] where they are not two plain steps."""
    first = _lexical_best(known, _lexical_hear(left, now, None)) if left and right else None
    if first is None:
        return []
    fields = first.tool.output.get("properties") if isinstance(first.tool.output, dict) else None
    second = _lexical_best(known, _lexical_hear(right, now, fields if isinstance(fields, dict) else {}))
    if second is None or strict and (first.cost or second.cost):
        return []
    if (first.tool.destructive or second.tool.destructive) and (not firm or second.borrowed):
        return []
    head = {"tool": first.tool.name, "args": _plan_escape(first.args)}
    if second.borrowed:
        head["output"] = "$result"
    return [head, {"tool": second.tool.name, "args": dict(_plan_escape(second.args), **second.borrowed)}]


def _lexical_hear(tokens: Sequence[Any], now: float, borrow: Mapping[str, Any] | None) -> Any:
    """Return a sentence, or a half of one, with what is the same for every command. Pure.

    borrow: the fields of an earlier step's result, name -> schema, from which a missing slot may be filled.
    """
    import datetime
    from types import SimpleNamespace

    try:
        today = datetime.datetime.fromtimestamp(now).date()
    except (OverflowError, OSError, ValueError):
        today = datetime.date.fromordinal(1)  # no clock says so: relative dates make no sense then
    points = borrow is not None and any(token.low in LEXICAL_POINTERS for token in tokens)
    return SimpleNamespace(tokens=tokens, spans=_words_spans(tokens, today), asks=_lexical_asks(tokens), borrow=borrow,
                           today=today.isoformat(), points=points)


def _lexical_best(known: Sequence[Any], said: Any) -> Any:
    """Return the best reading of a sentence if it is complete and leads by enough, else None. Pure."""
    readings = [reading for tool in known for reading in [_lexical_read(tool, said)] if reading is not None]
    # What only lacks a value that the sentence speaks of is what was meant, not the next best.
    rivals = [reading for reading in readings if reading.missing != "silent" and (reading.borrowed or not said.points)]
    idle = WORDS_IDLE - {"all", "everything"}
    content = [token for token in said.tokens if not token.mark and token.low not in idle]
    if len([token for token in said.tokens if not token.mark]) == 1:  # a word alone may mean anything
        rivals = [reading for reading in readings if content and content[0].low == reading.tool.name]
    rivals.sort(key=lambda reading: (bool(reading.missing) - reading.score))
    first = content[0].stem if content else ""
    if rivals and first not in rivals[0].tool.near and any(
            reading.missing and first == _words_stem(reading.tool.name) for reading in readings):
        return None
    if not rivals or rivals[0].missing or rivals[0].score < LEXICAL_SCORE * (
            1 if not rivals[0].used or not rivals[0].tool.readonly else 0.5):
        return None
    best = rivals[0]
    owners = [tool for tool in known if first in map(_words_stem, _words_of(tool.name))]
    if best.tool.destructive and owners and best.tool not in owners:
        return None  # the verb is the name of another tool, which did not understand the rest
    margin = (LEXICAL_MARGIN_DESTRUCTIVE if best.tool.destructive else
              LEXICAL_MARGIN_READONLY if best.tool.readonly else LEXICAL_MARGIN)
    return best if len(rivals) == 1 or best.score - rivals[1].score + bool(rivals[1].missing) >= margin else None
# endregion LEXICAL


# region ADOPT -- from_click, from_argparse, argv emission
# needs: LIMITS ERRORS JSON ENV TYPES SHAPES REG ARGV PLAN
# A program that has a command line made with click or argparse keeps it: each of its commands becomes a Command whose
# schema says what is allowed, and whose handler writes that down as argv and lets the old parser run it. So converters,
# callbacks and checks of the old parser guard as ever, after everything of ours. Neither package is imported: objects
# are known by their shape. What cannot be said in a schema or on a line is refused by name, when the program starts.
#
#     level  = { option tokens } [ "--" ] { word } [ name of the next level ]
#     part   = one field: its schema, and the tokens that say a value of it
#
# A value that equals its static default is left unsaid. No token can be taken for another: a text that the old parser
# would read as an option, a file name to expand or another argument is refused.

#: what from_click and from_argparse take for one command, as nk.command does; args: Arg by field
ADOPT_OPTIONS = frozenset(
    "name help keywords expose destructive readonly idempotent scope returns hidden examples args".split()
)
#: name of a type of click -> the type of JSON that says it; others are text
ADOPT_TYPES: dict[str, type] = {
    "IntParamType": int, "IntRange": int, "FloatParamType": float, "FloatRange": float, "BoolParamType": bool,
}
ADOPT_SPECIAL = frozenset("^$\\.*+?()[]{}|/")  # characters that mean something in a pattern
#: functions of click and getpass that ask a person
ADOPT_ASKING = ("visible_prompt_func", "hidden_prompt_func", "_getchar", "getpass")
ADOPT_SUPPRESS = "==SUPPRESS=="  # how argparse marks what is not shown
ADOPT_ARGPARSE_VALUES = ("_StoreAction", "_AppendAction", "_ExtendAction")  # actions that take values,
#: actions that take none,
ADOPT_ARGPARSE_SWITCHES = (
    "_StoreConstAction", "_StoreTrueAction", "_StoreFalseAction", "BooleanOptionalAction", "_AppendConstAction",
)
ADOPT_ARGPARSE_LEFT_OUT = ("_HelpAction", "_VersionAction", "_SubParsersAction")  # actions that are none of a command's
ADOPT_UNSAID = "cannot be said on its own command line; leave it out or give another value"


def _adopt_part(
    name: str, shape: Shape, say: Callable[[Any], list[str]], *, about: Arg | None = None,
    default: Any = TYPES_ABSENT, required: bool = False, words: tuple[int, int] | None = None, keep: bool = False,
) -> Any:
    """Return one field of an adopted command: what it takes, and the tokens that say it. Pure.

    name: what the old parser calls it. say: JSON value -> tokens; raises ValueError with what is wrong with the value.
    about: help, alias, roles. default: JSON value that the old parser has where nothing is said. words: of a
    positional, the least and the most words it takes, None for an option. keep: whether the default must be said too.
    Its attribute field is the Field, once all names are known.
    """
    from types import SimpleNamespace

    return SimpleNamespace(name=name, shape=shape, say=say, about=about or Arg(), default=default, required=required,
                           words=words, keep=keep, field=None)


def _adopt_is_default(part: Any, value: Any) -> bool:
    """Tell whether a value need not be said, for the old parser has it where nothing is said. Pure."""
    if part.default is TYPES_ABSENT or part.keep or part.words is not None:
        return False
    return _adopt_equal(value, part.default)


def _adopt_silent(part: Any) -> list[bool]:
    """Return the booleans that are said by saying nothing. Pure."""
    found = []
    for value in (True, False) if part.shape.make is bool else ():
        try:
            found += [] if part.say(value) else [value]
        except ValueError:
            pass  # it cannot be said at all
    return found


# Values and their tokens


def _adopt_words(value: Any) -> list[str]:
    """Return a scalar, or a list or tuple of any depth, as words in order. Pure."""
    if isinstance(value, (list, tuple)):
        return [word for item in value for word in _adopt_words(item)]
    return [value if isinstance(value, str) else _json_dumps(value)]


def _adopt_equal(one: Any, other: Any) -> bool:
    return bool(_json_key(one) == _json_key(other))


def _adopt_scalar(kind: type) -> Shape:
    found: Any = _types_scalar(kind)
    return found  # type: ignore[no-any-return]


def _adopt_choice(values: Sequence[Any], any_case: bool = False) -> Shape:
    """Return the shape of a set of texts or numbers; any_case: whether the case of letters does not matter."""
    shape = _types_choice([(value, value) for value in values], "one of " + ", ".join(map(_json_show, values)))
    if not any_case:
        return shape
    spelled = "|".join("".join(map(_adopt_letter, str(value))) for value in values)
    schema = {"anyOf": [shape.schema, {"type": "string", "pattern": f"^(?:{spelled})$"}]}
    return _adopt_scalar(str).copy(schema=schema, tight=True)


def _adopt_letter(letter: str) -> str:
    """Return the pattern of a letter in either case. Pure."""
    cases = letter.lower() + letter.upper()
    if letter in ADOPT_SPECIAL:
        return "\\" + letter
    return f"[{cases}]" if len(cases) == 2 and cases[0] != cases[1] else letter  # 2: one for each case


def _adopt_default(shape: Shape, default: Any) -> Any:
    """Return a default as JSON, text of it read as its type; TYPES_ABSENT for what the old parser alone can make."""
    if isinstance(default, (list, tuple)):
        inner = shape.parts[0] if shape.form == "array" else None
        parts = [inner] * len(default) if inner is not None else [*shape.parts]
        made = [_adopt_default(part, item) for part, item in zip(parts, default)]
        known = len(made) == len(default) and not any(item is TYPES_ABSENT for item in made)
        default = made if known else TYPES_ABSENT
    elif hasattr(default, "__fspath__"):
        default = os.fspath(default)
    elif isinstance(default, _types_enum()):
        default = default.name if shape.takes(default.name) else default.value
    try:
        if isinstance(default, str):
            default = _types_read_text(shape.schema, default, True)
        made = shape.to_json(default)
        return made if shape.takes(made) else TYPES_ABSENT
    except _TypesFault:
        return TYPES_ABSENT


def _adopt_switch(
    name: str, rows: Sequence[tuple[Any, str]], default: Any, about: Arg, *, fixed: bool = True, many: bool = False
) -> Any:
    """Return the part of options that take no value: each row is a JSON value and the option that means it.

    default: what holds where none stands on the line, where that is known. fixed: whether it may stand in the schema.
    many: the options add up to a list.
    """
    values = [value for value, _ in rows]
    if default is not TYPES_ABSENT and not many and not any(_adopt_equal(default, value) for value in values):
        values.append(default)
    flag = all(isinstance(value, bool) for value in values)
    shape = _adopt_scalar(bool) if flag else _adopt_choice(values)

    def say(value: Any) -> list[str]:
        if many:
            return [option for item in value for known, option in rows if _adopt_equal(known, item)]
        if default is not TYPES_ABSENT and _adopt_equal(value, default):
            return []
        found = [option for known, option in rows if _adopt_equal(known, value)]
        if not found:
            raise ValueError(ADOPT_UNSAID)
        return found[:1]

    shape = _types_array(list, shape) if many else shape
    return _adopt_part(name, shape, say, about=about, default=([] if many else default) if fixed else TYPES_ABSENT)


def _adopt_count(name: str, option: str, base: int, default: Any, most: Any, about: Arg) -> Any:
    """Return the part of an option that is counted. base: the number that its first use is added to.

    default: what holds where it does not stand on the line, TYPES_ABSENT where that is not known.
    """
    about.min = base + (default != base)
    about.max = min(most if isinstance(most, int) else base + ADOPT_COUNT, base + ADOPT_COUNT)
    return _adopt_part(name, _adopt_scalar(int), lambda value: [option] * (value - base), about=about, default=default)


def _adopt_alias(options: Sequence[str]) -> str | None:
    letters = [one[1:] for one in options if len(one) == 2 and one[0] == "-" and one[1] in ARGV_ALIAS_LETTERS - {"h"}]
    return letters[0] if letters else None


def _adopt_option(options: Sequence[str]) -> str:
    """Return the clearest spelling of an option. Pure."""
    return max(options, key=len)


def _adopt_paragraph(text: Any) -> str:
    """Return the first paragraph of a help text as one line. Pure."""
    lines = [line.strip() for line in str(text or "").partition("\f")[0].replace("\b", "").strip().splitlines()]
    return " ".join(lines[: lines.index("")] if "" in lines else lines)


# Levels -> Command


def _adopt_allot(places: Sequence[tuple[int, int]], total: int, reserve: bool) -> list[int]:
    """Return how many of so many words each positional takes. Pure.

    reserve: each leaves what those after it need (argparse); else each takes what it can, and those behind the one that
    takes any number take theirs from the end (click).
    """
    counts, order = [0] * len(places), [*range(len(places))]
    if not reserve:
        open_ended = next((at for at in order if places[at][1] == ADOPT_WORDS), len(order))
        order = order[:open_ended] + order[:open_ended:-1] + order[open_ended : open_ended + 1]
    for done, at in enumerate(order, 1):
        kept = sum(places[later][0] for later in order[done:]) if reserve else 0
        counts[at] = max(0, min(places[at][1], total - kept))
        total -= counts[at]
    return counts


def _adopt_placed(
    words: Sequence[tuple[tuple[int, int], list[str]]], following: str | None, reserve: bool
) -> list[str]:
    """Return the words of positionals and the name of the next level.

    reserve: see _adopt_allot. Raises: ValueError where the old parser would deal the words out in another way.
    """
    rows = [*words, *([((1, 1), [following])] if following is not None else [])]
    said = [row[1] for row in rows]
    if _adopt_allot([row[0] for row in rows], sum(map(len, said)), reserve) != [*map(len, said)]:
        raise ValueError("a positional argument is left out before one that is given, which would take its place; "
                         "give both, or leave out both")
    return [word for group in said for word in group]


def _adopt_line(levels: Sequence[tuple[Any, ...]], given: Mapping[str, Any], confirmed: bool) -> list[str]:
    """Return the argv of a call. Raises: VALIDATION_ERROR for a value that would be read as something else."""
    tokens: list[str] = []
    for _, parts, confirm, following, judge in levels:
        words: list[tuple[tuple[int, int], list[str]]] = []
        for part in parts:
            name, said = part.field.name, []
            if name in given and not _adopt_is_default(part, given[name]):
                try:
                    said = part.say(given[name])
                except ValueError as fault:
                    where = {"argument": _json_pointer([name])}
                    raise Error("VALIDATION_ERROR", f"{_json_show(name)} {fault}", details=where) from None
            if part.words is None:
                tokens += said
            else:
                words.append((part.words, said))
        tokens += confirm if confirmed else ()
        try:
            placed = _adopt_placed(words, following, judge is not None)
            tokens += ["--", *placed] if judge is None else judge(placed)  # after -- no word is an option
        except ValueError as fault:
            raise Error("VALIDATION_ERROR", str(fault)) from None
    return tokens


def _adopt_fields(
    owner: str, levels: Sequence[tuple[Any, ...]], extra: Mapping[str, Arg]
) -> tuple[Shape, list[Field]]:
    """Return the shape and fields of all levels; each part gets its field.

    A name that the framework has, or a level further down, gets its own level's in front of it.
    Raises: REGISTRATION_ERROR.
    """
    compiler = _ShapesCompiler(owner)
    taken: dict[str, Any] = {}
    letters: set[str | None] = set()
    setattr(compiler, "bare", lambda note, scope: note)  # the annotations here are shapes already
    for word, parts, *_ in reversed(levels):
        for at, part in enumerate(parts):
            name = part.name
            if any(name == other.name for other in parts[:at]):
                raise RegistrationError(f"{owner}: two parameters are named {_json_show(name)}; rename one of them")
            if name.replace("_", "-") in REG_RESERVED_FIELDS | {"version"} or name in taken:
                name = f"{word.replace('-', '_')}_{name}"
            while name in taken:
                name += "_"
            taken[name] = part
    for name in extra:
        if name not in taken:
            raise RegistrationError(f"{owner}: args[{_json_show(str(name))}] is none of its parameters, "
                                    f"which are {', '.join(taken) or 'none'}")
    for name, part in taken.items():
        compiler.trail = [f'the parameter "{name}"']
        if part.about.alias in letters:
            part.about.alias = None
        letters.add(part.about.alias)
        about = _shapes_merge([part.about, *([extra[name]] if name in extra else ())])
        part.field = field = compiler.field(name, part.shape, {}, part.default, override=about)
        field.required = part.required
        field.option_only = part.words is None
    ordered = [part for _, parts, *_ in levels for part in parts]
    ordered.sort(key=lambda part: part.words is None)
    placed = [part for part in ordered if part.words is not None]
    if placed:
        last = placed[-1]
        last.field.variadic = last.words[1] == ADOPT_WORDS
    fields = [part.field for part in ordered]
    compiler.trail = []
    shape = compiler.guard(lambda: _types_object(fields, dict, "an object"))
    _shapes_find_paths(fields)
    return shape, fields


def _adopt_command(
    kind: str, path: str, name: str, levels: Sequence[tuple[Any, ...]], source: Any,
    run: Callable[..., Any], *, help: str, options: Mapping[str, Any], rules: Callable[[], dict[str, Any]] = dict,
) -> Command:
    """Return the Command of one adopted command.

    levels: the parsers on the way to it, from the outermost: (its word, parts, tokens that confirm, name of the next or
    None, what makes the end of its tokens of its words or None for click). source: the whole parser. run: runs argv.
    rules: makes what its schema says beside its fields. Raises: REGISTRATION_ERROR.
    """
    owner = f"{kind} command {path}"
    for option in options:
        if option not in ADOPT_OPTIONS:
            raise RegistrationError(f"{owner}: an adopted command has no option {_json_show(str(option))}; "
                                    f"the options are {', '.join(sorted(ADOPT_OPTIONS))}")
    given = {"name": name, "help": help, **options}
    shape, fields = _adopt_fields(owner, levels, given.pop("args", None) or {})
    shape = shape.copy(schema=dict(shape.schema, **rules()))
    asks = any(confirm for _, _, confirm, *_ in levels)
    given["destructive"] = bool(given.get("destructive")) or asks

    def adopted(values: dict[str, Any], ctx: Ctx) -> object:
        name = ctx.command.name if ctx.command is not None else path
        try:
            return _adopt_run(name, ctx, source, run, _adopt_line(levels, values, ctx.confirmed))
        except Error as error:  # the old parser quotes what it refuses
            for word in _adopt_words([values[field.name] for field in fields if field.secret and field.name in values]):
                error.message = error.message.replace(word, CALL_MASK) if word else error.message
            raise

    about = {"__qualname__": owner, "__module__": None, "__knaif_input__": lambda: (shape, fields)}
    for attribute, value in about.items():
        setattr(adopted, attribute, value)
    return Command(adopted, input={"type": "object", "properties": shape.schema["properties"]}, **given)


def _adopt_commands(
    kind: str, found: Iterable[tuple[str, str, Any]], options: Mapping[str, Any] | None, skip: Collection[str],
    make: Callable[[str, str, Any, Mapping[str, Any]], Command],
) -> list[Command]:
    """Return what make returns for each row (name, path, parsers) that is not skipped. Raises: REGISTRATION_ERROR."""
    rows, about = [row for row in found if row[0] not in skip], options or {}
    names = [name for name, _, _ in rows]
    for name in about:
        if name not in names:
            raise RegistrationError(f"{kind}(options=...) names {_json_show(str(name))}, which is none of the commands "
                                    f"{', '.join(names) or '(there are none)'}")
    return [make(name, path, chain, about.get(name, {})) for name, path, chain in rows]


# The call


def _adopt_run(name: str, ctx: Ctx, source: Any, run: Callable[..., Any], argv: list[str]) -> object:
    """Run an adopted command with its output captured; return its result, else what it printed.

    Nobody can be asked: what click and getpass ask with ends as on a terminal that was closed, and sys.stdin is empty
    unless a program or file on the command line feeds it. One such call runs at a time, for all of this is the
    process's. Raises: what run does.
    """
    from io import BytesIO, TextIOWrapper
    from threading import RLock

    def ask(*_: object) -> str:
        raise EOFError("nobody can be asked")

    def printed(one: str) -> str:
        try:
            streams[one].flush()
            return str(buffers[one].getvalue(), "utf-8", "replace")
        except ValueError:
            return ""  # it was closed

    # Copies of this module share the process and its streams, so they share the lock.
    with sys.__dict__.setdefault("_knaif_adopted", RLock()):
        buffers = {one: BytesIO() for one in ("stdout", "stderr", "stdin")}
        streams = {one: TextIOWrapper(buffer, "utf-8", "backslashreplace", "") for one, buffer in buffers.items()}
        swaps: list[tuple[Any, str, Any]] = [(sys, one, stream) for one, stream in streams.items()]
        if ctx.surface == "cli" and not _env_is_terminal(getattr(sys, "stdin")):
            swaps.pop()
        homes = {base.__module__.rpartition(".")[0] + ".termui" for base in type(source).__mro__} | {"getpass"}
        swaps += [(sys.modules[home], word, ask) for home in homes for word in ADOPT_ASKING
                  if hasattr(sys.modules.get(home), word)]
        before = [(place, word, getattr(place, word)) for place, word, _ in swaps]
        result: Any = TYPES_ABSENT
        try:
            for place, word, stand_in in swaps:
                setattr(place, word, stand_in)
            result = run(name, argv, lambda: printed("stderr"))
        finally:
            for place, word, old in before:
                setattr(place, word, old)
            ctx.stderr.write(printed("stderr"))
            text = printed("stdout")
            if result is TYPES_ABSENT:
                ctx.stdout.write(text)
        return _adopt_result(result, text, ctx)


def _adopt_result(result: Any, text: str, ctx: Ctx) -> object:
    """Return what a command returned, else what it printed, else None; text beside a result goes to ctx.stdout."""
    if not hasattr(result, "__await__"):
        try:
            result = _types_write_free(result)
        except _TypesFault:
            result = None  # no JSON; its own program would not have looked at it
    if result is None:
        return (text[:-1] if text.endswith("\n") else text) or None
    ctx.stdout.write(text)
    return result


def _adopt_left(name: str, code: Any) -> None:
    """Return where a command ended with exit code 0. Raises: REQUEST_ABORTED, UPSTREAM_TOOL_ERROR."""
    if code is None or isinstance(code, int) and code == 0:
        return
    if not isinstance(code, int):
        raise Error("UPSTREAM_TOOL_ERROR", f"{name} ended with the words {_json_show(str(code))}")
    told = {"exitCode": code}
    if code == ERRORS_EXIT_CODES["REQUEST_ABORTED"]:
        raise Error("REQUEST_ABORTED", f"{name} was aborted", details=told)
    raise Error("UPSTREAM_TOOL_ERROR", f"{name} ended with exit code {code}", details=told)


# click


def from_click(
    group: Any, *, options: Mapping[str, Mapping[str, Any]] | None = None, skip: Collection[str] = ()
) -> list[Command]:
    """Return the commands of a click group, or a click command alone, for ``App(commands=nk.from_click(group))``.

    The command b of the group a is a_b, with the options of the groups above it; a group with invoke_without_command is
    a command too. Confirmation options, and a flag --yes, make a command destructive and are given for it once it is
    approved. What is hidden or deprecated is left out, like options that are not handed to the function. A parameter
    named like an option of this framework, or one of a group like one of the command, gets the command's or group's
    name in front of it. Each call goes through click's own main(): what the function returns is the result, else what
    it printed; questions are closed off.

    options: {command: what nk.command takes}; its args: {field: Arg}, on top of what click says: path=True for a text
    that only the function knows to be a path. skip: names of commands, and command.parameter.
    Raises: REGISTRATION_ERROR.
    """

    def make(name: str, path: str, chain: Any, about: Mapping[str, Any]) -> Command:
        owner = f"click command {path}"
        dynamic = any(getattr(one, "context_settings", {}).get(word) for one, _ in chain
                      for word in ("auto_envvar_prefix", "default_map"))
        levels: list[tuple[Any, ...]] = []
        for one, following in chain:
            parts, confirm = _adopt_click_parts(one, owner, dynamic, name, skip)
            levels.append((_adopt_click_name(one), parts, confirm, following, None))
        leaf = chain[-1][0]
        text = getattr(leaf, "help", None) or getattr(leaf, "short_help", None)
        text = text or getattr(getattr(leaf, "callback", None), "__doc__", "")
        return _adopt_command("click", path, name, levels, group, _adopt_click_runner(group),
                              help=_adopt_paragraph(text), options=about)

    return _adopt_commands("from_click", _adopt_click_walk(group, [], None), options, skip, make)


def _adopt_click_name(command: Any) -> str:
    return str(getattr(command, "name", None) or "main")


def _adopt_click_walk(command: Any, above: list[Any], context: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, path, [(click command, name of the next)...]) of each command that can be called."""
    words = [following for _, following in above]
    path = " ".join([_adopt_click_name(above[0][0] if above else command), *words])
    if not hasattr(command, "params") or not hasattr(command, "main"):
        raise RegistrationError(f"from_click needs a click group or command, not {_reg_show(command)}")
    if getattr(command, "chain", False):
        raise RegistrationError(f"click command {path} is a group with chain=True, whose commands feed each other; "
                                "write what they do together as one command")
    name = "_".join(words) or _adopt_click_name(command)
    if not hasattr(command, "list_commands"):
        yield name, path, [*above, (command, None)]
        return
    if len(above) == ADOPT_LEVELS:
        raise RegistrationError(f"click command {path} is a group inside of {ADOPT_LEVELS} groups; flatten them")
    if getattr(command, "invoke_without_command", False) and getattr(command, "callback", None) is not None:
        yield name, path, [*above, (command, None)]
    make = getattr(command, "context_class", None)
    inside = make(command, info_name=_adopt_click_name(command), parent=context) if make is not None else None
    for word in command.list_commands(inside):
        found = command.get_command(inside, word)
        if found is not None and not (getattr(found, "hidden", False) or getattr(found, "deprecated", False)):
            yield from _adopt_click_walk(found, [*above, (command, word)], inside)


def _adopt_click_parts(
    command: Any, owner: str, dynamic: bool, name: str, skip: Collection[str]
) -> tuple[list[Any], list[str]]:
    """Return the parts of one click command, and the tokens that confirm it. Raises: REGISTRATION_ERROR."""
    confirm: list[str] = []
    parts: list[Any] = []
    for one in command.params:
        if not all(hasattr(one, word) for word in ("param_type_name", "type", "nargs", "opts", "expose_value")):
            raise RegistrationError(f"{owner}: {getattr(one, 'name', None)} is {_reg_show(one)}, which is no parameter "
                                    "of click's; write the command for this framework")
        required = one.required and _adopt_click_given(one.default) is TYPES_ABSENT
        options = [*one.opts, *one.secondary_opts]
        prompt = getattr(one, "prompt", None)
        if one.is_eager and not one.expose_value or f"{name}.{one.name}" in skip:
            continue
        if getattr(one, "is_flag", False) and ("--yes" in options or prompt and not one.expose_value):
            confirm.append(_adopt_option(one.opts))
        elif not one.expose_value or getattr(one, "hidden", False) or getattr(one, "deprecated", False):
            if required or prompt:
                raise RegistrationError(f"{owner}: {options[0]} must be given, and is hidden, deprecated or not handed "
                                        "to the function; give it a default")
        elif getattr(one, "is_flag", False):
            if one.multiple:
                raise RegistrationError(f"{owner}: {options[0]} is a flag with multiple=True, which has no schema; "
                                        "use count=True")
            same = [other for other in command.params if other.name == one.name and getattr(other, "is_flag", False)]
            if one is same[0]:
                parts.append(_adopt_click_flag(same, dynamic))
        else:
            parts.append(_adopt_click_part(one, dynamic or bool(one.envvar)))
    return parts, confirm


def _adopt_click_given(value: Any) -> Any:
    """Return a default or flag_value of click, TYPES_ABSENT for what means that there is none. Pure."""
    return TYPES_ABSENT if value is None or type(value).__name__ == "Sentinel" else value


def _adopt_click_flag(options: Sequence[Any], dynamic: bool) -> Any:
    """Return the part of the flags that set one parameter: --a/--no-a, or one with a flag_value for each value."""
    rows: list[tuple[Any, str]] = []
    default: Any = TYPES_ABSENT
    for one in options:
        value = _adopt_click_given(one.flag_value)
        value = True if value is TYPES_ABSENT or one.secondary_opts else value
        rows.append((value, _adopt_option(one.opts)))
        if one.secondary_opts:
            rows.append((False, _adopt_option(one.secondary_opts)))
        given = _adopt_click_given(one.default)
        if not isinstance(value, bool):
            default = value if given is True else default if given in (False, TYPES_ABSENT) else given
        elif given is not TYPES_ABSENT or one.default is not None:
            default = False if given is TYPES_ABSENT else given
    one = options[0]
    dynamic = dynamic or any(option.envvar for option in options) or callable(default)
    about = Arg(_adopt_paragraph(one.help), alias=_adopt_alias(one.opts))
    part = _adopt_switch(one.name, rows, TYPES_ABSENT if dynamic else default, about)
    part.required = bool(one.required or one.prompt) and (dynamic or default is TYPES_ABSENT)
    part.keep = bool(one.prompt)
    return part


def _adopt_click_part(one: Any, dynamic: bool) -> Any:
    """Return the part of an argument, or of an option that takes values."""
    option = one.param_type_name == "option"
    prompt = option and one.prompt is not None and getattr(one, "prompt_required", True)
    about = Arg(_adopt_paragraph(one.help) if option else "")
    about.alias = _adopt_alias(one.opts) if option else None
    about.secret = option and bool(one.hide_input)
    formats = getattr(one.type, "formats", None)
    if formats:
        about.help = (about.help + f" (as {' or '.join(formats)})").strip()
    shape = _adopt_click_shape(one.type)
    default = _adopt_click_given(one.default)
    if option and one.count:
        known = default if isinstance(default, int) and not dynamic else TYPES_ABSENT
        return _adopt_count(one.name, _adopt_option(one.opts), 0, known, getattr(one.type, "max", None), about)
    listed = one.nargs == -1 or one.multiple
    if one.nargs > 1 and shape.form != "tuple":
        shape = _types_tuple([shape] * one.nargs)
    if listed:
        shape = _types_array(list, shape)
        default = [] if default is TYPES_ABSENT and not one.required else default
    known = TYPES_ABSENT if dynamic or callable(default) else _adopt_default(shape, default)
    required = (bool(one.required) or prompt) and known is TYPES_ABSENT and (prompt or not dynamic)
    if listed and (required or default):
        about.min = 1  # none at all would mean the default, or is refused
    token, loose = _adopt_option(one.opts), bool(getattr(one, "_flag_needs_value", False))

    def say(value: Any) -> list[str]:
        words = [_adopt_words(item) for item in (value if one.multiple else [value])]
        if loose and any(group[0][:1] in ("-", token[:1]) for group in words):
            raise ValueError("begins like an option, and the option it is for can stand without a value")
        return [word for group in words for word in ([token, *group] if option else group)]

    place = None if option else (0, ADOPT_WORDS) if listed else (one.nargs, one.nargs)
    return _adopt_part(one.name, shape, say, about=about, default=known, required=required, words=place, keep=prompt)


def _adopt_click_shape(kind: Any) -> Shape:
    """Return the shape of a type of click; of one that is no type of click's own, text, which its converter judges."""
    names = [base.__name__ for base in type(kind).__mro__]
    if "Tuple" in names:
        return _types_tuple([_adopt_click_shape(part) for part in kind.types])
    if "Choice" in names:
        plain = [one.name if isinstance(one, _types_enum()) else one for one in kind.choices]
        values = [one if isinstance(one, (str, int, float)) else str(one) for one in plain]
        return _adopt_choice(values, not kind.case_sensitive)
    shape = _adopt_scalar(next((ADOPT_TYPES[name] for name in names if name in ADOPT_TYPES), str))
    schema = dict(shape.schema)
    if "UUIDParameterType" in names:
        schema["format"] = "uuid"
    if {"IntRange", "FloatRange"} & {*names} and not kind.clamp:
        for bound, word, is_open in ((kind.min, "inimum", kind.min_open), (kind.max, "aximum", kind.max_open)):
            if bound is not None:
                schema[("exclusiveM" if is_open else "m") + word] = bound
    path = not {"Path", "File"}.isdisjoint(names) or _adopt_is_path(getattr(kind, "func", None))
    return shape.copy(schema=schema, tight=True, marks=frozenset(("path",) if path else ()))


def _adopt_is_path(convert: Any) -> bool:
    """Tell whether what converts an argument makes a path or an open file of it: PurePath, open, argparse.FileType."""
    names = [base.__name__ for base in getattr(convert, "__mro__", type(convert).__mro__)]
    return "PurePath" in names or "FileType" in names or convert is open


def _adopt_click_runner(group: Any) -> Callable[..., Any]:
    """Return what runs argv through click."""

    def run(name: str, argv: list[str], printed: Callable[[], str]) -> Any:
        """Run one line through click's own main() and turn its endings into ours."""
        from copy import copy

        ended: list[bool] = []

        def invoke(context: Any) -> Any:
            result = group.invoke(context)
            ended.append(True)  # main() returns the code of an Exit as if it were a result
            return result

        twin = copy(group)
        twin.invoke = invoke
        try:
            result = twin.main(args=argv, prog_name=_adopt_click_name(group), complete_var="", standalone_mode=False)
        except (Exception, SystemExit) as error:
            result = _adopt_click_ending(name, error)
        return result if ended else _adopt_left(name, result)

    return run


def _adopt_click_ending(name: str, error: BaseException) -> Any:
    """Return the exit code of what a click command was left with. Raises: what it means here."""
    names = [base.__name__ for base in type(error).__mro__]
    if hasattr(error, "format_message"):
        code = "VALIDATION_ERROR" if "UsageError" in names else "BAD_REQUEST"
        raise Error(code, f"{name}: {error.format_message()}") from None
    if "Abort" in names:
        asked = isinstance(error.__context__, EOFError)
        why = "it asked a question, which nobody can answer" if asked else "it gave up by itself"
        raise Error("REQUEST_ABORTED", f"{name} was aborted: {why}") from None
    if isinstance(error, SystemExit) or "Exit" in names:
        return error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
    raise error


# argparse


def from_argparse(
    parser: Any, handler: Callable[[Any], Any] | str = "func", *,
    options: Mapping[str, Mapping[str, Any]] | None = None, skip: Collection[str] = (),
) -> list[Command]:
    """Return the commands of an argparse parser, for ``App(commands=nk.from_argparse(parser))``.

    handler: the function that is called with the namespace, or the name under which set_defaults or a constant put it
    there. The subparser b of a is a_b, with the options of the parsers above it; a parser with set_defaults(func=...)
    whose subparsers are optional is a command too. Options whose help is SUPPRESS are left out. Names that are taken,
    results and output, options and skip are as with from_click; exclusive and required groups stand in the
    schema. Each call goes through parse_args(). Raises: REGISTRATION_ERROR.
    """

    def make(name: str, path: str, chain: Any, about: Mapping[str, Any]) -> Command:
        """Return the command of one chain of parsers."""
        owner, groups = f"argparse command {path}", []
        levels: list[tuple[Any, ...]] = []
        if isinstance(handler, str) and not any(
                handler in [*one._defaults, *(action.dest for action in one._actions)] for one, _ in chain):
            raise RegistrationError(f"{owner}: nothing says which function it calls; give set_defaults({handler}=...) "
                                    "or from_argparse(parser, handler)")
        signs = "".join(one.fromfile_prefix_chars or "" for one, _ in chain)
        word = path.partition(" ")[0]
        for one, following in chain:
            parts, rest = _adopt_argparse_parts(one, owner, following, signs, name, skip)
            levels.append((word, parts, [], following, _adopt_argparse_judge(one, following is not None, rest, signs)))
            groups += [(group, parts) for group in one._mutually_exclusive_groups]
            word = following
        return _adopt_command("argparse", path, name, levels, parser, _adopt_argparse_runner(parser, handler),
                              help=_adopt_argparse_help(chain), options=about, rules=lambda: _adopt_rules(groups))

    return _adopt_commands("from_argparse", _adopt_argparse_walk(parser, [], handler), options, skip, make)


def _adopt_argparse_walk(parser: Any, above: list[Any], handler: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, path, [(parser, name of the next)...]) of each command that can be called."""
    if not hasattr(parser, "parse_args") or not hasattr(parser, "_actions"):
        raise RegistrationError(f"from_argparse needs an argparse parser, not {_reg_show(parser)}")
    words = [following for _, following in above]
    program = str((above[0][0] if above else parser).prog).rpartition("/")[2]
    program = program[:-3] if program.endswith(".py") else program
    name, path = "_".join(words) or program, " ".join([program.replace(" ", "-"), *words])
    nested = next((one for one in parser._actions if type(one).__name__ == "_SubParsersAction"), None)
    if len(above) == ADOPT_LEVELS:
        raise RegistrationError(f"argparse command {path} is a subparser inside of {ADOPT_LEVELS}; flatten them")
    if nested is None or not nested.required and isinstance(handler, str) and handler in parser._defaults:
        yield name, path, [*above, (parser, None)]
    hidden = {one.dest for one in (nested._choices_actions if nested is not None else ()) if one.help == ADOPT_SUPPRESS}
    seen: list[Any] = []
    for word, child in nested.choices.items() if nested is not None else ():
        if not any(child is one for one in seen) and word not in hidden | set(getattr(nested, "_deprecated", ())):
            yield from _adopt_argparse_walk(child, [*above, (parser, word)], handler)
        seen.append(child)


def _adopt_argparse_help(chain: Sequence[tuple[Any, Any]]) -> str:
    """Return the description of the last parser, else what the one above says about it, and what it needs one of."""
    leaf = chain[-1][0]
    text = _adopt_paragraph(leaf.description)
    for one in chain[-2][0]._actions if not text and len(chain) > 1 else ():
        for row in getattr(one, "_choices_actions", ()):
            text = _adopt_paragraph(row.help) if row.dest == chain[-2][1] else text
    for group in leaf._mutually_exclusive_groups:
        needs = "Needs" if group.required else "Takes at most"
        text += f" {needs} one of {', '.join(one.dest for one in group._group_actions)}."
    return text.strip()


def _adopt_argparse_parts(
    parser: Any, owner: str, following: str | None, signs: str, name: str, skip: Collection[str]
) -> tuple[list[Any], bool]:
    """Return the parts of a parser, and whether one of them takes the rest of the line. Raises: REGISTRATION_ERROR."""
    parts: list[Any] = []
    grouped = [one for group in parser._mutually_exclusive_groups for one in group._group_actions]
    rest = any(one.nargs == "..." for one in parser._actions)
    for one in parser._actions:
        kind = type(one).__name__ if type(one).__module__ == "argparse" else ""
        needed = one.required if one.option_strings else one.nargs not in ("?", "*")
        hidden = one.help == ADOPT_SUPPRESS and not needed
        if kind in ADOPT_ARGPARSE_LEFT_OUT or hidden or f"{name}.{one.dest}" in skip:
            continue
        shown = one.option_strings[0] if one.option_strings else one.dest
        fault = _adopt_argparse_fault(one, kind, following is not None, following is not None or rest)
        if fault:
            raise RegistrationError(f"{owner}: {shown} {fault}")
        fixed = not any(one is other for other in grouped)
        about = Arg(_adopt_argparse_text(parser, one), alias=_adopt_alias(one.option_strings))
        if kind in ADOPT_ARGPARSE_SWITCHES:
            many = kind == "_AppendConstAction"
            same = [other for other in parser._actions if other.dest == one.dest and many == (
                type(other).__name__ == "_AppendConstAction") and type(other).__name__ in ADOPT_ARGPARSE_SWITCHES]
            if one is same[0]:
                parts.append(_adopt_argparse_switch(same, about, fixed, many))
        elif kind == "_CountAction":
            base = one.default if isinstance(one.default, int) else 0
            default = base if fixed and one.default is not None else TYPES_ABSENT
            parts.append(_adopt_count(one.dest, _adopt_option(one.option_strings), base, default, None, about))
        else:
            parts.append(_adopt_argparse_part(parser, one, kind, about, fixed, signs))
    return parts, rest


def _adopt_argparse_fault(one: Any, kind: str, inner: bool, bare: bool) -> str:
    """Return why an action cannot be mapped, "" where it can. inner, bare: subparsers, or no --, follow. Pure."""
    if kind not in ADOPT_ARGPARSE_VALUES + ADOPT_ARGPARSE_SWITCHES + ("_CountAction",):
        return (f"has the action {type(one).__name__}, which is none of argparse's own; use one of those with type=, "
                "or leave it out with skip=")
    if not one.option_strings:
        if kind != "_StoreAction":
            return "is a positional that does not store its words; use action=\"store\""
        if inner and not (one.nargs is None or isinstance(one.nargs, int)):
            return f"takes {one.nargs} words before the name of a subparser; give it a fixed number"
        return ""
    if one.nargs in ("...", "A..."):
        return "is an option that takes the rest of the line; make it a positional"
    if kind == "_ExtendAction" and one.nargs not in ("+", "*"):
        return "extends a list without nargs=\"+\"; use action=\"append\" or give it that"
    if bare and one.nargs in ("+", "*") and kind != "_ExtendAction":
        return f"takes {one.nargs} words, and words without -- follow; use action=\"append\""
    return ""


def _adopt_argparse_text(parser: Any, action: Any) -> str:
    """Return the help text of an action, its %(default)s and the like filled in, with choices no schema has."""
    text = str(action.help or "")
    try:
        text = parser._get_formatter()._expand_help(action) if "%" in text else text
    except (AttributeError, KeyError, TypeError, ValueError):
        pass  # it is shown as it was written
    known = isinstance(action.choices, (type(None), range)) or "enum" in _adopt_argparse_shape(action).schema
    listed = "" if known else f" (one of {', '.join(map(str, action.choices))})"
    return (_adopt_paragraph(text) + listed).strip()


def _adopt_argparse_switch(actions: Sequence[Any], about: Arg, fixed: bool, many: bool) -> Any:
    """Return the part of the actions without a value that set one attribute."""
    rows: list[tuple[Any, str]] = []
    for one in actions:
        names = one.option_strings
        if type(one).__name__ == "BooleanOptionalAction":
            off = [name for name in names if name.startswith("--no-")]
            rows += [(True, _adopt_option([name for name in names if name not in off])), (False, _adopt_option(off))]
        else:
            named = _adopt_option(names).lstrip(names[0][0])
            rows.append((one.const if isinstance(one.const, (str, int, float)) else named, _adopt_option(names)))
    first, default = actions[0], actions[0].default
    known = isinstance(default, (str, int, float)) and default != ADOPT_SUPPRESS
    made = _adopt_switch(first.dest, rows, default if known else TYPES_ABSENT, about, many=many,
                         fixed=fixed and not (many and default))
    made.required = any(one.required for one in actions)
    return made


def _adopt_argparse_part(parser: Any, one: Any, kind: str, about: Arg, fixed: bool, signs: str) -> Any:
    """Return the part of a positional, or of an option that takes values."""
    shape = _adopt_argparse_shape(one)
    many, option = kind != "_StoreAction", bool(one.option_strings)
    if isinstance(one.nargs, int):
        shape = _types_tuple([shape] * one.nargs)
    elif one.nargs in ("*", "+", "...") and kind != "_ExtendAction":
        shape = _types_array(list, shape)
        about.min = 1 if one.nargs == "+" and not many else None
    shape = _types_array(list, shape) if many else shape
    given = [] if one.default is None and one.nargs in ("*", "...") and not option else one.default
    known = TYPES_ABSENT if given is None or given == ADOPT_SUPPRESS or not fixed else _adopt_default(shape, given)
    if many:
        known = TYPES_ABSENT  # what is given is added to it
    token = _adopt_option(one.option_strings) if option else ""

    def say(value: Any) -> list[str]:
        said = []
        for item in value if many else [value]:
            words = _adopt_words(item)
            joined = option and len(words) == 1
            faults = [_adopt_argparse_misread(parser, word, "" if joined else signs, not joined) for word in words]
            for fault in filter(None, faults if option else ()):
                raise ValueError(fault)
            said += [f"{token}={words[0]}"] if joined else [token, *words] if option else words
        return said

    places = {None: (1, 1), "?": (0, 1), "*": (0, ADOPT_WORDS), "+": (1, ADOPT_WORDS), "...": (0, ADOPT_WORDS)}
    words = None if option else (one.nargs, one.nargs) if isinstance(one.nargs, int) else places[one.nargs]
    about.rest = one.nargs == "..."
    required = bool(one.required) if option else words is not None and words[0] > 0
    return _adopt_part(one.dest, shape, say, about=about, default=known, required=required, words=words)


def _adopt_argparse_shape(one: Any) -> Shape:
    """Return the shape of one word of an action; of a conversion that is not known, text, which it judges itself."""
    convert, choices = one.type, one.choices
    kind = convert if convert in (int, float) else str
    if isinstance(choices, range) and choices.step == 1 and kind is int and choices:
        schema = {"type": "integer", "minimum": choices[0], "maximum": choices[-1]}
        return _adopt_scalar(int).copy(schema=schema, tight=True)
    if choices is None and isinstance(convert, type) and issubclass(convert, _types_enum()):
        choices = [member.value for member in one.type]
    plain = (str,) if kind is str else (int, float)
    if choices is not None and not isinstance(choices, range) and (convert in (None, str, kind) or one.choices is None):
        values = [*choices]
        if values and all(isinstance(value, plain) and not isinstance(value, bool) for value in values):
            return _adopt_choice(values)
    return _adopt_scalar(kind).copy(marks=frozenset(("path",) if _adopt_is_path(convert) else ()))


def _adopt_argparse_misread(parser: Any, word: str, signs: str, bare: bool) -> str:
    """Return how a parser would misread a word, "" where it would not. bare: no -- stands before it. Pure."""
    number = not parser._has_negative_number_optionals and parser._negative_number_matcher.match(word)
    if word == "--":
        return "is --, which its parser would drop"
    if bare and len(word) > 1 and word[0] in parser.prefix_chars and not number:
        return f"begins with {word[0]}, so that its parser would take it for an option"
    if word and word[0] in signs:
        return f"begins with {word[0]}, so that its parser would read a file of arguments"
    return ""


def _adopt_argparse_judge(parser: Any, inner: bool, rest: bool, signs: str) -> Callable[[list[str]], list[str]]:
    """Return what makes the end of a level of its words, after -- where it can have one.

    inner: the last word is the name of a subparser. rest: the last positional takes options too, once it has begun.
    """

    def judge(words: list[str]) -> list[str]:
        bare, free = inner or rest, words
        if rest:  # once it has begun, everything is read as it stands
            fixed = sum(one.nargs is None for one in parser._actions if not one.option_strings)
            free = words[: max(1, fixed)]
        faults = [_adopt_argparse_misread(parser, word, signs, bare) for word in free]
        faults += [_adopt_argparse_misread(parser, "." if word == "--" else word, signs, False) for word in words]
        for fault in filter(None, faults):
            raise ValueError(f"a positional argument {fault}")
        return words if bare or not words else ["--", *words]

    return judge


def _adopt_rules(groups: Sequence[tuple[Any, Sequence[Any]]]) -> dict[str, Any]:
    """Return what a schema says about exclusive groups: at most one member, where required exactly one. Pure."""
    alone: dict[str, Any] = {}
    needs: dict[str, Any] = {}
    for group, parts in groups:
        dests = [one.dest for one in group._group_actions]
        members = {part.field.name: _adopt_silent(part) for part in parts if part.name in dests}
        absent = {name: {"enum": silent} if silent else False for name, silent in members.items()}
        for name, silent in members.items():
            others: Any = {"properties": {other: rule for other, rule in absent.items() if other != name}}
            if silent:
                others = {"if": {"properties": {name: {"enum": silent}}}, "else": others}
            alone[name] = others
        if group.required and members:
            first, silent = next(iter(members.items()))
            given = {"properties": {first: {"enum": [not silent[0]]}}} if silent else {}
            needs = {"if": {"properties": absent}, "then": {"required": [first], **given}, "else": needs}
    return {**({"dependentSchemas": alone} if alone else {}), **needs}


def _adopt_argparse_runner(parser: Any, handler: Any) -> Callable[..., Any]:
    """Return what runs argv through argparse and then the function it belongs to."""

    def run(name: str, argv: list[str], printed: Callable[[], str]) -> Any:
        """Parse one line and call its function."""
        try:
            found = parser.parse_args(argv)
        except SystemExit:
            why = printed().strip().rpartition("error: ")[2]
            raise Error("VALIDATION_ERROR", f"{name}: {why or 'its parser refuses the arguments'}") from None
        except Exception as error:
            if type(error).__name__ != "ArgumentError":
                raise
            raise Error("VALIDATION_ERROR", f"{name}: {error}") from None
        call = getattr(found, handler, None) if isinstance(handler, str) else handler
        if not callable(call):
            raise Error("INTERNAL_SERVER_ERROR", f"{name}: its parser left no function in {handler}")
        try:
            return call(found)
        except EOFError:
            why = "it read past the end of its input, where nobody answers"
            raise Error("REQUEST_ABORTED", f"{name} was aborted: {why}") from None
        except SystemExit as leaving:
            return _adopt_left(name, leaving.code)

    return run


# Plan -> argv


def emit_argv(plan: Plan, program: str | Sequence[str] = ()) -> list[list[str]]:
    """Return the command line of each step of a plan, for a host that dispatches them itself.

    program: what stands first, a name or several words. Each line reads back, in the application the plan was checked
    by, to the same arguments: defaults are left out where nothing else could fill them in, secrets always.

    A host that runs these lines gives up what execute() does: no approval is asked for or passed on (no --yes is
    written, and a program other than this one may not ask), paths were judged at the check and are not judged again
    unless the program does so itself, nothing holds the steps together, and no result reaches a later step, so that a
    plan with references is refused. Raises: BAD_REQUEST.
    """
    if not isinstance(plan, Plan):
        raise Error("BAD_REQUEST", f"emit_argv needs a checked plan, as app.check returns it, not {_reg_show(plan)}")
    first = [program] if isinstance(program, str) else [*program]
    lines = []
    for index, step in enumerate(plan._steps):
        where = f"plan[{index}] ({step.tool})"
        if step.admitted is None:
            raise Error("BAD_REQUEST", f"{where} holds a reference, whose value only execution knows; execute the plan",
                        details={"step": index})
        if not step.command.is_on("cli"):
            raise Error("BAD_REQUEST", f"{where} is not a shell command, so that no command line stands for it; "
                        "expose it on cli", details={"step": index})
        lines.append([*first, step.tool, *_adopt_emit(step.command, step.admitted.args, where)])
    return lines


def _adopt_emit(command: Command, args: Mapping[str, Any], where: str) -> list[str]:
    """Return the tokens of one call, each an option with its value in it. Raises: BAD_REQUEST."""
    root, tokens, said = command.input.schema, [], {}
    line = _ArgvLine(name=command.name, fields=command.fields, root=root)
    hidden = {place[0] for place in command.input.locate(args, "secret")}
    for field in command.fields:
        name = field.name
        if name not in args or name in hidden or field.secret:
            continue
        value = said[name] = args[name]
        plain = field.default is not TYPES_ABSENT and field.env is None
        if plain and _adopt_equal(field.default, value):
            del said[name]
            continue
        words = [word for word in ("--" + field.public_name, "--" + name, "--." + name) if word in line.words]
        words = words[::-1] if command.remote else words  # an option of the application may have that name too
        spelled = [f"{word}={value if isinstance(value, str) else _json_dumps(value)}" for word in words
                   if not isinstance(value, (list, dict)) and value is not None]
        spelled += [f"{word}:={_json_dumps(value)}" for word in words]
        found = next((token for token in spelled if _adopt_reads_back(line, [token], {name: value})), None)
        if found is None:
            raise Error("BAD_REQUEST", f"{where}: no command line can say the value of {_json_show(name)}")
        tokens.append(found)
    if not _adopt_reads_back(line, tokens, said):
        raise Error("BAD_REQUEST", f"{where}: no command line can say these values together")
    return tokens


def _adopt_reads_back(line: _ArgvLine, tokens: Sequence[str], args: Mapping[str, Any]) -> bool:
    """Tell whether tokens mean exactly these arguments, on a line of this command and as words of a process."""
    if any("\0" in token for token in tokens):
        return False
    read = _argv_parse(tokens, line)
    return not read.faults and read.help is None and _adopt_equal(read.args, dict(args))
# endregion ADOPT


# region APP -- App: puts the sections together, routing, output, exit
# needs: LIMITS ERRORS JSON ENV FILES PATHS SCHEMA TYPES SHAPES REG ARGV CALL VIEWS HELP FETCH WAIT STREAM BATCH PLAN PLANNER LEXICAL
# An App is a name, a version and commands. A line goes through it in this order, and each step refuses before the
# next is reached:
#
#     check      the registration (exit 70)
#     route      framework options, --version, help, the command's name
#     lift       application options, wherever they stand; any fault of theirs beats everything below (64)
#     find       static commands first; only a name that is not among them asks for the identity and the factories
#     parse      the rest of the line (64); the command's own help
#     fill       environment, piped standard input, a secret's question
#     engine     admit, authorise, approve, handle, check (the error's own exit code)
#     emit       one JSON document on standard output, or one failure on standard error
#
# App holds what the program declares; _AppLine holds one run of it.



class App:
    """A program made of commands.

    name, version: what --version prints. description: first lines of the help.
    commands: functions or Command objects beside those the decorators record. services, runtime_tools: Service objects
    and commands, as lists or as functions of the identity; with a function the names are known only once resolve_auth
    has answered. expose: the surfaces of managed commands that say nothing themselves (cli, agent, mcp).
    default_command: the command of a line that names none. aliases: {command: {"f": "follow"}}. positionals: {command:
    ["target", ...]}. passthrough: {command: field} collects unknown options.
    global_options: a dataclass, TypedDict or schema of application options. auth is the identity, resolve_auth(globals)
    finds it, at most once. context(identity, globals) makes ctx.context. lifecycle, hooks: see Lifecycle and Hooks.
    wait: {command: Wait}, what --wait does. download(result): lists or yields {"url", "name"} of the files of a result,
    for --output-dir; download_private_hosts: they may stand inside your own network.
    error_hint: text, or a function of the error, added to the hint of each failure. stdin: a function that reads piped
    input in place of the 250 ms rule. exit_codes: {error code: exit code}. sandbox: the folder that path arguments must
    stay below, or nk.UNCONFINED. profiles: a ProfileStore; it owns --profile, ctx.profile is what was resolved, and
    resolve_auth(globals, profile) is given it too. planner: what turns sentences into plans, in place of the built-in
    LexicalPlanner, which needs no model.

    The constructor records; faults are found at every start, as RegistrationError.
    """

    __knaif_app__ = APP_PROTOCOL  #: how `python3 knaif.py run` knows an App of another copy of this file

    def __init__(
        self,
        name: str,
        version: str = "0.0.0",
        *,
        description: str = "",
        commands: Iterable[Any] = (),
        services: Any = (),
        runtime_tools: Any = (),
        connections: Any = (),
        expose: Collection[str] = REG_DEFAULT_EXPOSE,
        default_command: str | None = None,
        aliases: Mapping[str, Mapping[str, str]] | None = None,
        positionals: Mapping[str, Sequence[str]] | None = None,
        global_options: Any = None,
        auth: Any = None,
        resolve_auth: Callable[[Any], Any] | None = None,
        context: Callable[[Any, Any], Any] | None = None,
        lifecycle: Lifecycle | None = None,
        hooks: Hooks | None = None,
        error_hint: str | Callable[[Error], str | None] | None = None,
        wait: Mapping[str, Any] | None = None,
        download: Callable[[Any], Any] | None = None,
        download_private_hosts: bool = False,
        stdin: Callable[[], str | None] | None = None,
        exit_codes: Mapping[str, int] | None = None,
        passthrough: Mapping[str, str] | None = None,
        sandbox: Any = None,
        profiles: Any = None,
        planner: Any = None,
        stamp: Any = None,
    ) -> None:
        self.name, self.version, self.description = name, version, description  #: what --version and the help show
        self.expose = expose  #: surfaces of commands that do not say
        self.default_command = default_command  #: command of a line that names none
        self.aliases = aliases or {}  #: command -> letter -> field
        self.positionals = positionals or {}  #: command -> fields that stand without their option
        self.passthrough = passthrough or {}  #: command -> field that collects unknown options
        self.global_options = global_options  #: specification of the application options
        self.auth, self.resolve_auth, self.context = auth, resolve_auth, context  #: who calls, and what handlers see
        self.lifecycle, self.hooks, self.error_hint = lifecycle, hooks, error_hint  #: what stands around calls
        self.wait = wait or {}  #: command -> Wait, what --wait does for it
        self.download = download  #: result -> the {"url", "name"} of its files, for --output-dir
        self.download_private_hosts = download_private_hosts  #: whether those may stand inside one's own network
        self.stdin = stdin  #: reader in place of the 250 ms rule
        self.exit_codes = exit_codes or {}  #: overrides of the table
        self.sandbox = sandbox  #: folder, UNCONFINED or None
        self.profiles = profiles  #: a ProfileStore, which owns --profile, or None
        self.planner = planner  #: turns sentences into plans; a LexicalPlanner once the first is asked for
        self.services, self.runtime_tools = services, runtime_tools  #: lists, or functions of the identity
        self.commands = commands  #: functions and Command objects beside those the decorators record
        self._recorded: list[tuple[Any, dict[str, Any]]] = []
        self._later = [
            (option, text) for option, value, text in (
                ("connections", connections, "MCP connections"),
                ("stamp", stamp, "build stamps"),
            ) if value
        ]
        self.own_views: frozenset[str] = frozenset()  #: commands that answer view options themselves
        self._surface: _AppSurface | None = None

    def command(self, function: Any = None, **options: Any) -> Any:
        """Record a managed command: ``@app.command`` or ``@app.command(destructive=True)``; options as nk.command."""
        return self._record(command, function, options)

    def native(self, function: Any = None, **options: Any) -> Any:
        """Record a command of this executable: cli only, no identity, no lifecycle; options as nk.native."""
        return self._record(native, function, options)

    def _record(self, decorator: Callable[..., Any], function: Any, options: dict[str, Any]) -> Any:
        if function is None:
            return lambda later: self._record(decorator, later, options)
        self._recorded.append((function, dict(options, native=True) if decorator is native else options))
        return function

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run the command line of this process and exit with its code.

        Owns the descriptors: while it runs, file descriptor 1 is standard error for print() and for child processes,
        and only the result reaches standard output.
        """
        self._main(argv, None)

    def serve(self, kind: str, words: Sequence[str], shown_name: str = "") -> None:
        """Run one of APP_SERVED on this application as if it were mounted, with these words, and exit as main does.

        shown_name: what messages call the application, by default its name. Raises: BAD_REQUEST for another kind.
        """
        if kind not in APP_SERVED:
            raise Error("BAD_REQUEST", f"this program serves {', '.join(APP_SERVED)}, not {_json_show(kind)}")
        make = APP_SERVED[kind]
        mount = _reg_command(make(), default_expose=REG_DEFAULT_EXPOSE)
        self._main([kind, *words], mount, shown_name)

    def _main(self, argv: Sequence[str] | None, mount: Command | None, shown_name: str = "") -> None:
        env = Env()
        try:
            env = Env.own_descriptors()
            line = self._line(env, None, mount)
            line.shown_name = shown_name or self.name
            code = int(_call_drive(line.run(argv, False)))
            env.finish()
        except Error as error:
            code = self._line(env, None).refuse(error)
        except KeyboardInterrupt:  # a second one, while the first is being answered
            code = exit_code("REQUEST_ABORTED", self.exit_codes)
        sys.exit(code)

    def run(self, argv: Sequence[str] | None = None, *, env: Env | None = None, cancel: Cancel | None = None) -> int:
        """Run one line and return its exit code; argv is the line without the program's name. Never raises Error."""
        return int(_call_drive(self._line(env, cancel).run(argv, False)))

    async def arun(
        self, argv: Sequence[str] | None = None, *, env: Env | None = None, cancel: Cancel | None = None
    ) -> int:
        """The same as run inside a running event loop: coroutine handlers are awaited in it."""
        return await self._line(env, cancel).run(argv, True)

    def _line(self, env: Env | None, cancel: Cancel | None, mount: Command | None = None) -> _AppLine:
        return _AppLine(self, Env() if env is None else env, cancel, mount)

    def invoker(self, globals: Mapping[str, Any] | None = None, *, env: Env | None = None) -> Invoker:
        """Return what calls the commands of the command line in process, each through the whole pipeline.

        globals: application options as JSON, and "profile"; what is left out comes from the environment, then from
        its default. Raises: USAGE for a wrong application option, RegistrationError.
        """
        line = self._line(env, None)
        return line.invoker(self.surface(), self._options(line, globals))

    def _options(self, line: _AppLine, globals: Mapping[str, Any] | None) -> Engine:
        """Return the engine of a line with these application options, as JSON. Raises: USAGE, REGISTRATION_ERROR."""
        try:
            given = _json_copy(dict(globals or {}))
        except (_JsonFault, TypeError, ValueError) as fault:
            raise _ErrorsUsage([f"application options: {fault}"]) from None
        surface = self.surface()
        unknown = sorted(given.keys() - {field.name for field in surface.fields})
        if unknown:
            raise _ErrorsUsage([f"application options: there is no {_json_show(unknown[0])}"])
        return line.make_engine(surface, line.take_globals(surface, given))

    # -- the boundary: a model proposes, this program checks, somebody else approves ---------------------------------

    def plan(
        self, utterance: str, *, now: float | None = None, globals: Mapping[str, Any] | None = None,
        env: Env | None = None,
    ) -> Plan:
        """Return the checked plan that the planner makes of a sentence; one inference, and nothing is called.

        A plan of no steps means that no command fits. now: seconds since 1970 that "today" is meant from. globals, env:
        as for invoker. Raises: what check raises, and what the planner refuses with.
        """
        engine = self._boundary(globals, env)
        return _plan_check(engine, self._propose(engine, utterance, now))

    def check(
        self, plan: str | bytes | Mapping[str, Any], *, globals: Mapping[str, Any] | None = None, env: Env | None = None
    ) -> Plan:
        """Return the checked plan of a model's text, or of its object; nothing is called but hooks.before_call.

        Raises: PLAN_INVALID, NOT_FOUND, VALIDATION_ERROR, SANDBOX_ESCAPE, with "step" and "argument" in their details;
        USAGE for a wrong application option.
        """
        engine = self._boundary(globals, env)
        try:
            return _plan_check(engine, plan)
        except Error:
            raise
        except Exception as fault:  # an object whose own methods fail
            raise Error("PLAN_INVALID", "this is no plan: an object that cannot be read") from fault

    def execute(
        self, plan: Plan, confirmed: Any = False, dry_run: bool = False, *, cancel: Cancel | None = None
    ) -> PlanResult:
        """Run a checked plan and return how that ended, with the results of all steps that ended.

        confirmed: True, the plan's digest, or a function of a step that returns True: what lets destructive steps
        happen. dry_run: call nothing but what is registered with previews=True; it wins over confirmed.
        """
        if not isinstance(plan, Plan) or plan._engine.app is not self:
            error = Error("BAD_REQUEST", f"execute runs a plan that check of {self.name} returned, not "
                          + ("one of another application" if isinstance(plan, Plan) else _reg_show(plan)))
            return PlanResult(None, error=error, exit_code=exit_code(error.code, self.exit_codes))
        result: PlanResult = _call_drive(_plan_execute(plan, confirmed=confirmed, dry_run=dry_run, cancel=cancel))
        return result

    def invoke(
        self, utterance: str, dry_run: bool = False, confirmed: Any = False, *, now: float | None = None,
        globals: Mapping[str, Any] | None = None, env: Env | None = None, cancel: Cancel | None = None,
    ) -> PlanResult:
        """Plan a sentence and execute the plan; what the planner, the check or a step refuses is in the result.

        The digest of one plan never covers another, so a digest is of little use here: plan, look, then execute.
        """
        try:
            plan = self.plan(utterance, now=now, globals=globals, env=env)
            if not len(plan):
                raise _app_no_command(plan._engine, utterance)
        except Error as error:
            return PlanResult(None, error=error, exit_code=exit_code(error.code, self.exit_codes))
        return self.execute(plan, confirmed, dry_run, cancel=cancel)

    def _boundary(self, globals: Mapping[str, Any] | None, env: Env | None) -> Engine:
        line = self._line(env, None)
        return _app_boundary(line, self._options(line, globals))

    def _propose(self, engine: Engine, utterance: str, now: float | None) -> object:
        """Return the object that the planner wrote. Raises: PLAN_INVALID, UPSTREAM_TOOL_ERROR, BAD_REQUEST."""
        if not isinstance(utterance, str):
            raise Error("BAD_REQUEST", f"a sentence is text, not {_reg_show(utterance)}")
        self.planner = self.planner or LexicalPlanner()
        request = _planner_request(engine, utterance)
        request.now = request.now if now is None else now
        try:
            text, thinking = self.planner.propose(request), getattr(self.planner, "thinking", "closed")
        except (Error, KeyboardInterrupt):
            raise
        except BaseException as fault:
            raise Error("UPSTREAM_TOOL_ERROR", f"the planner {type(self.planner).__name__} failed") from fault
        if not isinstance(text, (str, bytes)):
            raise Error("UPSTREAM_TOOL_ERROR", f"the planner {type(self.planner).__name__} answered with "
                        f"{_reg_show(text)}, not with text")
        return _plan_read(text, thinking=thinking)

    def _invoker(self, engine: Engine) -> Invoker:
        """Return an invoker for calls inside a call: same application options, profile and identity.

        A child that a handler forks ends with its call: it must not go on with the calls of its parent.
        """
        process = os.getpid()

        def end_child(outcome: Outcome) -> None:
            if os.getpid() != process:
                os._exit(outcome.exit_code)

        return self._line(engine.env, None).invoker(self.surface(), engine, end_child)

    # -- the protocol that another copy of this file drives: JSON-ready values only ---------------------------------

    def describe(self) -> dict[str, Any]:
        """Return name, version, protocol, commands with their schemas, and problems, all as JSON. Compiles everything.

        A command whose registration is faulty is named under problems and left out of commands.
        """
        commands: list[dict[str, Any]] = []
        problems: list[str] = []
        try:
            found = self.surface().registry.commands()
        except RegistrationError as fault:
            found, problems = [], [fault.message]
        for item in found:
            try:
                commands.append(_app_describe(item))
            except RegistrationError as fault:
                problems.append(fault.message)
        return {"name": self.name, "version": self.version, "protocol": APP_PROTOCOL,
                "commands": commands, "problems": problems}

    def selftest(self) -> list[str]:
        """Return what is wrong with this application's registration, a sentence each; an empty list when nothing is."""
        problems: list[str] = self.describe()["problems"]
        return problems

    def completion(self, shell: str, program: str | None = None) -> str:
        """Return the completion script of the static commands for bash, zsh or fish. Raises: BAD_REQUEST."""
        surface = self.surface()
        return _help_completion(
            shell, program or self.name, surface.registry.commands("cli"), surface.fields, self.aliases,
            self.positionals, self.default_command, self.passthrough, surface.root,
        )

    def surface(self) -> _AppSurface:
        """Return the checked static commands, built again once new ones are recorded. Raises: RegistrationError."""
        if self._surface is None or self._surface.size != len(self._recorded):
            self._surface = _AppSurface(self)
        return self._surface


class _AppSurface:
    """The static half of an application, checked: registry, application options, sandbox."""

    def __init__(self, app: App) -> None:
        self.app = app  #: the application this was built from
        self.size = len(app._recorded)  #: how many recorded commands it holds
        self.shape: Shape | None = None  #: of the application options
        self.fields: list[Field] = []  #: the application options
        self.root: Any = True  #: schema of the application options, where references lead
        self.make_globals: Callable[[Any], Any] = dict  #: JSON of the application options -> what handlers see
        if app._later:
            option, text = app._later[0]
            raise RegistrationError(f"App({option}=...) of {app.name}: this version of the module has no {text}; "
                                    "leave it out")
        if app.auth is not None and app.resolve_auth is not None:
            raise RegistrationError(f"App {app.name} was given both auth and resolve_auth; pass one of them")
        _app_check_arguments(app)
        _app_check_exit_codes(app)
        if app.global_options is not None:
            self.shape, self.fields, self.make_globals = _shapes_options(app.global_options, f"App {app.name}")
            self.root = self.shape.schema
        self.own_fields = self.fields  #: the application options but --profile
        if app.profiles is not None:
            self.fields = [*self.fields, _app_profile_field(app, self.fields)]
        self.sandbox = _app_sandbox(app)  #: a Sandbox, UNCONFINED, or None
        self.registry = Registry()  #: the static commands
        services = () if callable(app.services) else app.services
        tools = () if callable(app.runtime_tools) else app.runtime_tools
        self.fill(self.registry, [(thing, {}) for thing in app.commands] + app._recorded, services, tools)
        self.check(self.registry, whole=not self.dynamic)

    @property
    def dynamic(self) -> bool:
        """Whether some command names are known only once the identity is."""
        return callable(self.app.services) or callable(self.app.runtime_tools)

    def fill(self, registry: Registry, commands: Iterable[Any], services: Iterable[Any], tools: Iterable[Any]) -> None:
        """Add commands of every kind to a registry. Raises: RegistrationError."""
        expose = self.app.expose
        for thing, options in commands:
            registry.add(_reg_command(thing, options, default_expose=expose))
        for service in services:
            for item in _reg_service(service, expose):
                registry.add(item)
        for item in tools:
            tool = _reg_command(item, default_expose=expose)
            if tool.native:
                raise RegistrationError(f"{tool.owner} is a native command, which cannot be a runtime tool; "
                                        "list it in the commands of the application")
            registry.add(tool)

    def check(self, registry: Registry, *, whole: bool) -> None:
        """Check names against options and policies; whole: no further commands will come. Raises: RegistrationError."""
        app = self.app
        registry.check(
            global_names=[field.name for field in self.fields], aliases=app.aliases, positionals=app.positionals,
            passthrough=app.passthrough, wait=app.wait, default_command=app.default_command, whole=whole,
        )
        for name, wait in app.wait.items():
            _wait_check(wait, registry, name, whole=whole)

    def extended(self, services: Any, tools: Any) -> Registry:
        """Return a registry with what the factories made for one identity as well. Raises: RegistrationError."""
        registry = Registry()
        for item in self.registry.commands():
            registry.add(item)
        _app_check_lists(self.app.name, {"services": services, "runtime_tools": tools})
        self.fill(registry, (), services, tools)
        self.check(registry, whole=True)
        return registry


class _AppLine:
    """One run of a command line: finds, reads, runs and prints."""

    def __init__(self, app: App, env: Env, cancel: Cancel | None, mount: Command | None = None) -> None:
        self.app = app  #: the program
        self.mount = mount  #: a command of this module that stands in for the program's own, or None
        self.shown_name = app.name  #: what messages call the program
        self.profile_name: str | None = None  #: what --profile said
        self.env = env  #: the outside world
        self.cancel = cancel  #: the caller's signal
        self.options = Options()  #: framework options read so far; failures print by them
        self.prefix = ""  #: the command a usage fault points to for help
        self.missing: Error | None = None  #: why the managed surface could not be resolved
        self.engine: Engine | None = None  #: what runs the calls of this line, once its application options are known

    async def run(self, argv: Sequence[str] | None, live: bool) -> int:
        """Run the line; every failure ends as an exit code with its message on standard error."""
        try:
            tokens = self.env.argv[1:] if argv is None else list(argv)
            return await self._route(tokens, live)
        except Error as error:
            return self.refuse(error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                shown = Error("REQUEST_ABORTED", "the call was interrupted")
            elif _call_is_interruption(error, live):
                raise
            else:
                shown = Error("INTERNAL_SERVER_ERROR", f"{self.app.name} failed unexpectedly",
                              hint="set KNAIF_TRACE=1 to see the traceback")
            shown.__cause__ = None if isinstance(error, KeyboardInterrupt) else error
            return self.refuse(shown)

    # -- route, lift, find, parse -----------------------------------------------------------------------------------

    async def _route(self, tokens: list[str], live: bool) -> int:
        """Find out what the line asks for and do it: the version, help, or a command. Raises: Error."""
        surface = self.app.surface()
        registry = surface.registry
        route = _argv_route(tokens, surface.fields, self.app.default_command, surface.root)
        self.options = route.options
        if route.faults:
            raise _ErrorsUsage(route.faults)
        if route.version:
            return self._print_version()
        name = route.command
        found = self.mount or (registry.find_cli(name) if name is not None else None)
        if found is None:
            engine = self.make_engine(surface, self.take_globals(surface, self._lift(surface, route.tokens).globals))
            registry = await self.resolve(surface, engine, live)
            if name is None:
                return self._top_help(surface, registry, route.help or "")
            found = registry.find_cli(name)
        if found is None:
            if name == "version" and self.missing is None:
                return self._print_version()
            raise self.missing or _app_not_exposed(registry, str(name)) or _call_unknown(registry, str(name), "cli")
        return await self._command(surface, registry, found, route.tokens, live)

    async def _command(
        self, surface: _AppSurface, registry: Registry, command: Command, tokens: Sequence[str], live: bool
    ) -> int:
        """Read the rest of a command's line, fill what it left open, run the call and print how it ended."""
        self.prefix = command.name
        line = self._parse(surface, command, tokens)
        self.options = line.options
        if line.global_faults:
            raise _ErrorsUsage(line.faults)
        globals_json = self.take_globals(surface, line.globals)
        if line.help is not None:
            return self._command_help(surface, command)
        faults = line.faults + _app_refused_options(self.app, command, line.options)
        faults += _app_view_faults(self.app, line.options, registry, command)
        faults += _argv_fill_env(line.args, command.fields, command.input.schema, self.env.environ)
        if faults:
            raise _ErrorsUsage(faults)
        engine = self.engine = self.engine or self.make_engine(surface, globals_json)
        engine.options, engine.registry = line.options, registry
        if not command.native or self.profile_name is not None:
            _ = engine.profile  # one that cannot be resolved refuses the line before anything is asked
        await self._fill(command, line.args, live)
        call = Call(command, line.args, dry_run=line.options.dry_run, cancel=self.cancel)
        approval = Approval("all") if line.options.yes else Approval("ask", self._ask)
        if command.native and command.prints and not command.lines and not line.options.dry_run:
            self.env.give_back_stdout()
        return self._emit(command, await self._call(surface, call, approval, live))

    async def _call(self, surface: _AppSurface, call: Call, approval: Approval, live: bool) -> Outcome:
        """Run the call, wait for its job, then save its files, as far as the line asks for it. Raises: Error."""
        options, engine = self.options, _app_engine(self.engine)
        wait = self.app.wait.get(call.command.name) if options.wait and not options.dry_run else None
        # Looked up before the call, lest a job is begun that nobody can ask for.
        tool = await self._wait_tool(surface, wait.tool, live) if wait is not None else call.command
        outcome = await engine.perform(call, approval, live=live)
        if wait is not None:
            outcome = await _wait_poll(wait, outcome, engine=engine, command=call.command, tool=tool,
                                       timeout=options.wait_timeout, cancel=self.cancel, live=live)
        if options.output_dir is not None and not options.dry_run and outcome.error is None:
            await self._save(outcome, options.output_dir, live)
        return outcome

    async def _wait_tool(self, surface: _AppSurface, name: str, live: bool) -> Command:
        """Return the command that a wait polls, from the factories where it is not a static one. Raises: Error."""
        engine = _app_engine(self.engine)
        tool = engine.registry.get(name)
        if tool is None:
            engine.registry = await self.resolve(surface, engine, live)
            tool = engine.registry.get(name)
        if tool is None:
            raise self.missing or _call_unknown(engine.registry, name, "cli")
        return tool

    async def _save(self, outcome: Outcome, folder: str, live: bool) -> None:
        """Save the files of a result. What fails is said on standard error and makes the exit code 1.

        Raises: REQUEST_ABORTED, with the result in its details, for the call itself succeeded.
        """
        app, env = self.app, self.env

        def save(items: Any) -> list[Error]:
            return _fetch_download(items, folder, env=env, private_hosts=app.download_private_hosts,
                                   quiet=self.options.quiet, cancel=self.cancel)

        try:
            items = await _call_settle(app.download(outcome.data) if app.download is not None else (), live)
            if live:
                import asyncio

                failed = bool(await asyncio.get_running_loop().run_in_executor(None, save, items))
            else:
                failed = bool(save(items))
        except (Exception, SystemExit, KeyboardInterrupt) as fault:
            if isinstance(fault, KeyboardInterrupt) or getattr(fault, "code", None) == "REQUEST_ABORTED":
                raise Error("REQUEST_ABORTED", "saving files was interrupted; the call itself succeeded",
                            details={"result": outcome.data}) from None
            _call_trace(env, fault)
            why = fault.message if isinstance(fault, Error) else "the download function failed unexpectedly"
            env.write_err(f"not saved: {env.human(why)}\n")
            failed = True
        if failed:
            outcome.exit_code = ERRORS_EXIT_OTHER

    def _parse(self, surface: _AppSurface, command: Command, tokens: Sequence[str]) -> _ArgvLine:
        name, app = command.name if command is not self.mount else "", self.app
        passthrough = app.passthrough.get(name, command.passthrough)
        _argv_check_policy(
            command.owner, command.fields, root=command.input.schema, aliases=app.aliases.get(name),
            positionals=app.positionals.get(name), passthrough=passthrough, app_fields=surface.fields,
        )
        line = _ArgvLine(
            name=command.name, fields=command.fields, root=command.input.schema, app_fields=surface.fields,
            app_root=surface.root, aliases=app.aliases.get(name),
            positionals=app.positionals.get(name), passthrough=passthrough,
        )
        return _argv_parse(tokens, line)

    def _lift(self, surface: _AppSurface, tokens: Sequence[str]) -> _ArgvLine:
        """Return the application options of a line whose command is not known yet. Raises: USAGE."""
        line = _argv_parse(tokens, _ArgvLine(app_fields=surface.fields, app_root=surface.root))
        self.options = line.options
        if line.global_faults:
            raise _ErrorsUsage(line.global_faults)
        return line

    def take_globals(self, surface: _AppSurface, line_globals: Mapping[str, Any]) -> dict[str, Any]:
        """Return the application options: given, else environment, else default; keep what --profile said.

        Raises: USAGE, every fault of them.
        """
        given, shape = dict(line_globals), surface.shape
        if self.app.profiles is not None and "profile" in given:
            self.profile_name = given.pop("profile")
            if not isinstance(self.profile_name, str):
                raise _ErrorsUsage(["--profile: expected the name of a profile"])
        if shape is None:
            return {}
        faults = _argv_fill_env(given, surface.own_fields, shape.schema, self.env.environ)
        if not faults:
            for field in surface.own_fields:
                if field.name not in given and field.default is not TYPES_ABSENT:
                    given[field.name] = _json_copy(field.default)
            faults = [_app_option_fault(issue) for issue in shape.issues(given)]
        if not faults:
            given = shape.complete(given)
            faults = _app_path_faults(shape, given)
        if faults:
            raise _ErrorsUsage(faults)
        return given

    def make_engine(self, surface: _AppSurface, globals_json: dict[str, Any]) -> Engine:
        """Return the engine of this line over the static commands. Raises: USAGE for options the program refuses."""
        app, profiles = self.app, self.app.profiles
        try:
            value = surface.make_globals(globals_json)
        except Error as error:
            raise _ErrorsUsage([f"application options: {error.message}"]) from None
        resolve: Any = app.resolve_auth
        context = app.context

        def authenticate() -> Any:
            if resolve is None:
                return app.auth
            return resolve(value) if profiles is None else resolve(value, engine.profile)

        def find_profile() -> Any:
            return profiles.resolve(self.profile_name, self.env, quiet=self.options.quiet)

        engine = Engine(
            surface.registry, env=self.env, app=app, name=app.name, version=app.version, hooks=app.hooks,
            lifecycle=app.lifecycle, resolve_auth=authenticate,
            find_profile=find_profile if profiles is not None else None,
            make_context=(lambda who: context(who, value)) if context is not None else None,
            globals_json=globals_json, globals_value=value, options=self.options, sandbox=surface.sandbox,
            exit_codes=app.exit_codes,
        )
        engine.profile_name = self.profile_name
        return engine

    def invoker(
        self, surface: _AppSurface, engine: Engine, check: Callable[[Outcome], None] | None = None
    ) -> Invoker:
        """Return an invoker over an engine's twin; check: see Invoker. Raises: RegistrationError."""
        engine = engine.twin()

        async def find_more(live: Any) -> Registry:
            registry = await self.resolve(surface, engine, live)
            if self.missing is not None:
                raise self.missing
            return registry

        return Invoker(engine, find_more if surface.dynamic else None, check)

    async def resolve(self, surface: _AppSurface, engine: Engine, live: bool) -> Registry:
        """Return the whole registry; where the identity or a factory fails, the static one, and remember why."""
        self.engine = engine
        if not surface.dynamic:
            return surface.registry
        app = self.app
        try:
            who, _context = await engine.identity(live)
            services = await _call_settle(app.services(who), live) if callable(app.services) else ()
            tools = await _call_settle(app.runtime_tools(who), live) if callable(app.runtime_tools) else ()
        except RegistrationError:
            raise
        except Error as refusal:
            self.missing = refusal
        except (Exception, SystemExit) as error:
            self.missing = Error("INTERNAL_SERVER_ERROR", "the managed commands could not be looked up",
                                 hint="set KNAIF_TRACE=1 to see the traceback")
            self.missing.__cause__ = error
        else:
            return surface.extended(services, tools)
        return surface.registry

    # -- fill -------------------------------------------------------------------------------------------------------

    async def _fill(self, command: Command, args: dict[str, Any], live: bool) -> None:
        """Fill required fields that are still unset from piped input, then from questions for secrets.

        Raises: USAGE when the text cannot be read, BAD_REQUEST when standard input fails.
        """
        root = command.input.schema
        field = _argv_missing(command.fields, args, root)
        if field is None:
            return
        text = await self._piped(live)
        if text is not None:
            faults = _argv_fill_text(args, field, text, root)
            if faults:
                raise _ErrorsUsage(faults)
        for field in command.fields:
            if field.secret and field.required and field.name not in args:
                answer = self.env.ask_secret(f"{field.public_name}:")
                if answer:
                    faults = _argv_fill_text(args, field, answer, root, "the answer")
                    if faults:
                        raise _ErrorsUsage(faults)

    async def _piped(self, live: bool) -> str | None:
        """Return the piped text without surrounding white space, or None. Raises: BAD_REQUEST for what is not UTF-8."""
        if self.app.stdin is not None:
            given = await _call_settle(self.app.stdin(), live)
            if given is not None and not isinstance(given, str):
                raise Error("INTERNAL_SERVER_ERROR", f"App(stdin=...) of {self.app.name} returned a "
                            f"{type(given).__name__}, which is neither text nor None")
            text = given or ""
        else:
            data = self.env.read_stdin(ENV_STDIN_FIRST_BYTE_SECONDS)
            try:
                text = (data or b"").decode("utf-8")
            except UnicodeDecodeError as fault:
                raise Error("BAD_REQUEST", f"standard input is not UTF-8 at byte {fault.start}") from None
        return text.strip() or None

    def _ask(self, admitted: Admitted) -> bool | None:
        """Show the resolved call on the terminal and ask. None: nobody can be asked."""
        lines = _app_question(self.app, _app_engine(self.engine), admitted)
        return self.env.ask(lines, "Go on?")

    # -- emit -------------------------------------------------------------------------------------------------------

    def _emit(self, command: Command, outcome: Outcome) -> int:
        """Print the result or the failure of a call and return its exit code."""
        if outcome.error is not None:
            return self._print_failure(outcome.error)
        if command.native and command.prints and outcome.data is None:
            return outcome.exit_code
        try:
            self.env.write_out(self._text(command, outcome))
        except _JsonFault as fault:
            place = f" at {_json_pointer(fault.path)}" if fault.path else ""
            raise Error("INTERNAL_SERVER_ERROR", f"{command.name} returned a wrong result{place}: {fault.reason}"
                        ) from None
        return outcome.exit_code

    def _text(self, command: Command, outcome: Outcome) -> str:
        """Return what a success prints: a view, the presenter's text, or JSON. Raises: USAGE, INTERNAL_SERVER_ERROR."""
        data = outcome.data
        if _views_is_asked(self.options) and not self.options.dry_run:
            data = _app_view(self.options, data)
            if self.options.table:
                return f"{data}\n"
        elif command.present is not None and outcome.entered and not self.options.dry_run:
            try:
                text = command.present(outcome.result, self.options)
            except Exception as error:
                raise Error("INTERNAL_SERVER_ERROR", f"the presenter of {command.name} failed") from error
            if not isinstance(text, str):
                raise Error("INTERNAL_SERVER_ERROR", f"the presenter of {command.name} returned no text")
            return text
        return _json_dumps(data, pretty=not self.options.json, ascii_only=self.env.out_ascii) + "\n"

    def refuse(self, error: Error) -> int:
        """Print a failure that reached no engine, after the traceback of its cause where KNAIF_TRACE=1 asks for it."""
        if error.__cause__ is not None:
            _call_trace(self.env, error.__cause__)
        return self._print_failure(error)

    def _print_failure(self, error: Error) -> int:
        """Print one failure on standard error and return its exit code; usage and registration as plain text."""
        if error.code == "READER_GONE":
            pass  # nobody is left to read a word about it
        elif isinstance(error, _ErrorsUsage):
            words = (self.prefix, self.shown_name) if self.mount is not None else (self.shown_name, self.prefix)
            where = " ".join(words).rstrip()
            lines = [self.env.human(fault) for fault in error.faults] + [f"Try: {where} --help"]
            self.env.write_err("\n".join(lines) + "\n")
        elif isinstance(error, RegistrationError):
            self.env.write_err(self.env.human(error.message) + "\n")
        else:
            wire = _app_failure(error, self.app.error_hint)
            self.env.write_err(_json_dumps(wire, pretty=not self.options.json, ascii_only=True) + "\n")
        overrides = self.app.exit_codes
        return exit_code(error.code, overrides if hasattr(overrides, "items") else None)

    def _print_version(self) -> int:
        if self.options.json:
            text = _json_dumps({"name": self.app.name, "version": self.app.version}, ascii_only=self.env.out_ascii)
        else:
            text = f"{self.app.name} {self.app.version}"
        self.env.write_out(text + "\n")
        return 0

    def _top_help(self, surface: _AppSurface, registry: Registry, needle: str) -> int:
        """Print the top-level help, or the commands that a needle finds. Raises: NOT_FOUND when it finds none."""
        app = self.app
        commands = [item for item in registry.commands("cli") if not item.hidden]
        width = _app_width(self.env)
        if needle:
            text, matched = _help_search(commands=commands, needle=needle, width=width)
            if not matched:
                raise self.missing or _help_no_match(needle, len(commands), registry.suggest(needle, "cli"))
            exact = registry.find_cli(needle)
            if exact is not None and "cli" in exact.surfaces:
                text += "\n" + self._help_text(surface, exact)
        else:
            notes = [_app_missing_note(self.missing)] if self.missing is not None else []
            text = _help_top(
                name=app.name, version=app.version, description=app.description, commands=commands,
                default=app.default_command, app_fields=surface.fields, app_root=surface.root, notes=notes, width=width,
                hint_no_commands=bool(registry.commands()) and not commands,
            )
        return self._print_help(text)

    def _command_help(self, surface: _AppSurface, command: Command) -> int:
        return self._print_help(self._help_text(surface, command))

    def _print_help(self, text: str) -> int:
        self.env.write_out(_help_plain(text) if self.env.out_ascii else text)
        return 0

    def _help_text(self, surface: _AppSurface, command: Command) -> str:
        app = self.app
        return _help_command(
            name=app.name, command=command, positionals=app.positionals.get(command.name),
            aliases=app.aliases.get(command.name, HELP_NO_ALIASES), app_fields=surface.fields,
            app_root=surface.root, width=_app_width(self.env), passthrough=app.passthrough.get(command.name),
        )


def _app_describe(command: Command) -> dict[str, Any]:
    """Return one command as describe() and `python3 knaif.py tools` show it. Raises: RegistrationError."""
    flags = ("destructive", "readonly", "idempotent", "previews", "hidden", "native")
    return {
        "name": command.name, "description": command.description, "surfaces": sorted(command.surfaces),
        "withheld": dict(command.withheld), "flags": [flag for flag in flags if getattr(command, flag)],
        "input": command.input.schema, "output": command.output.schema if command.output is not None else None,
    }


def _app_check_arguments(app: App) -> None:
    """Refuse constructor arguments of a wrong kind before anything trips over them. Raises: RegistrationError."""
    for option in ("name", "version", "description"):
        if not isinstance(getattr(app, option), str):
            raise RegistrationError(f"App({option}=...) must be text, not {type(getattr(app, option)).__name__}")
    for option in ("aliases", "positionals", "passthrough", "wait", "exit_codes"):
        value = getattr(app, option)
        if not hasattr(value, "items"):
            raise RegistrationError(f"App({option}=...) of {app.name} must be a mapping, not {type(value).__name__}")
    for name, letters in app.aliases.items():
        if not hasattr(letters, "items"):
            raise RegistrationError(f"App(aliases=...) of {app.name}: {name} needs a mapping of letters to fields, "
                                    f"not {type(letters).__name__}")
    for name, fields in app.positionals.items():
        if not isinstance(fields, (list, tuple)):
            raise RegistrationError(f"App(positionals=...) of {app.name}: {name} needs a list of fields, "
                                    f"not {type(fields).__name__}")
    if not isinstance(app.default_command, (str, type(None))):
        raise RegistrationError(f"App(default_command=...) of {app.name} must be the name of a command")
    for option, parts in (("hooks", ("before_call", "on_error", "after_call")),
                          ("lifecycle", ("before_handle", "after_handle"))):
        value = getattr(app, option)
        if value is not None and (isinstance(value, type) or not all(hasattr(value, part) for part in parts)):
            raise RegistrationError(f"App({option}=...) of {app.name} must be {option.capitalize()}(...)")
    if app.planner is not None and not callable(getattr(app.planner, "propose", None)):
        raise RegistrationError(f"App(planner=...) of {app.name} needs a method propose(request)")
    for option in ("resolve_auth", "context", "download", "stdin"):
        if getattr(app, option) is not None and not callable(getattr(app, option)):
            raise RegistrationError(f"App({option}=...) of {app.name} must be a function")
    _app_check_lists(app.name, {"commands": app.commands, "services": app.services, "runtime_tools": app.runtime_tools})


def _app_check_lists(name: str, lists: Mapping[str, Any]) -> None:
    """Refuse what should be a list of commands and is none. Raises: RegistrationError."""
    for option, value in lists.items():
        if not isinstance(value, (list, tuple)) and not (callable(value) and option != "commands"):
            raise RegistrationError(f"App({option}=...) of {name} must be a list, not {type(value).__name__}")


def _app_profile_field(app: App, fields: Sequence[Field]) -> Field:
    """Return the --profile of an application with profiles. Raises: RegistrationError."""
    if not all(hasattr(app.profiles, part) for part in ("resolve", "variable")):
        raise RegistrationError(f"App(profiles=...) of {app.name} must be a ProfileStore")
    if any(field.name == "profile" for field in fields):
        raise RegistrationError(f"App(profiles=...) of {app.name} owns --profile; "
                                "leave profile out of global_options")
    field = Field("profile", {"type": "string"})
    field.required, field.option_only, field.env = False, True, app.profiles.variable
    field.help = "name of the profile to work with"
    return field


def _app_path_faults(shape: Shape, given: Mapping[str, Any]) -> list[str]:
    """Return a usage fault for each application option whose path no file system takes. Pure."""
    faults = []
    for place in shape.locate(given, "path") if shape.has_role("path") else ():
        try:
            _paths_check_text(_call_at(given, place))
        except Error as error:
            faults.append(f"--{str(place[0]).replace('_', '-')}: {error.message}")
    return faults


def _app_check_exit_codes(app: App) -> None:
    """Refuse overrides that no process can exit with. Raises: RegistrationError."""
    for code, status in app.exit_codes.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 0 <= status <= CALL_STATUS_MAX:
            raise RegistrationError(f"exit_codes of {app.name}: {code} needs a whole number from 0 to "
                                    f"{CALL_STATUS_MAX}, not {status!r}")


def _app_sandbox(app: App) -> Any:
    """Return the Sandbox of an application, UNCONFINED, or None. Raises: RegistrationError. Reads the file system."""
    if app.sandbox is None or app.sandbox is UNCONFINED:
        return app.sandbox
    try:
        return Sandbox(os.fspath(app.sandbox))
    except (Error, OSError, TypeError, ValueError) as fault:
        raise RegistrationError(f"App(sandbox=...) of {app.name}: {fault}") from None


def _app_refused_options(app: App, command: Command, options: Options) -> list[str]:
    """Return a fault for each framework option of this line that the command has no use for. Pure."""
    faults = []
    for asked, word in ((options.wait, "--wait"), (options.wait_timeout is not None, "--wait-timeout")):
        if asked and command.name not in app.wait:
            faults.append(f"{word}: {command.name} has no wait configured, so its first answer is final")
    if options.yes and command.lines:
        faults.append(f"--yes: {command.name} is not what would be confirmed; see its --help")
    if options.wait_timeout is not None and not options.wait and not faults:
        faults.append("--wait-timeout: nothing is waited for without --wait; add it")
    if options.output_dir is not None and app.download is None:
        faults.append("--output-dir: this program declares no download")
    elif options.output_dir is not None and command.native:
        faults.append(f"--output-dir: {command.name} is a native command, whose result names no files")
    return faults


def _app_view_faults(app: App, options: Options, registry: Registry, command: Command) -> list[str]:
    """Return what is wrong with the view that the line asks for, as far as it shows before the call."""
    if not _views_is_asked(options):
        return []
    if command.name in app.own_views:
        return _views_faults(options)
    if command.native and command.prints:
        return [f"a view needs a result, and {command.name} prints for itself"]
    faults = _views_faults(options)
    seen: list[Command | None] = [command]
    if options.wait and command.name in app.wait:
        seen.append(registry.get(app.wait[command.name].tool))  # its answer is viewed, or ours
    unknown = [_views_unknown(options, item.output.schema) if item and item.output else [] for item in seen]
    return faults or (unknown[-1] if all(unknown) else [])


def _app_shown(value: Any) -> str:
    """Return a value as its approval shows it: whole, for what is left out is approved unseen.

    Only what is longer than anyone reads is cut, in its middle, and says how long it is. Pure.
    """
    text = _json_dumps(value)
    if len(text) <= APP_QUESTION_CHARACTERS:
        return text
    half = APP_QUESTION_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]} ({len(text):,} characters, {len(text) - 2 * half:,} not shown)"


def _app_question(app: App, engine: Engine, admitted: Admitted) -> list[str]:
    """Return what a person is shown before a destructive call: the call, its profile, the application options."""
    shown = engine.resolved_call(admitted)
    lines = [f"{shown['command']} is destructive:"]
    for key, value in shown["args"].items():
        lines.append(f"  {key}: {_app_shown(value)}")
    profile = engine.profile if not admitted.call.command.native or engine.profile_name else None
    if profile is not None:
        source = {"option": "--profile", "environment": app.profiles.variable}.get(profile.source, "the only one")
        lines.append(f"  profile: {profile.name} ({source})")
    for field in app.surface().own_fields:
        given = engine.globals_json.get(field.name)
        if given is not None:
            text = _app_shown(CALL_MASK if field.secret else given)
            lines.append(f"  --{field.public_name}: {text}")
    return lines


def _app_view(options: Options, data: Any) -> Any:
    """Return a view of a result. Raises: USAGE, which says that the call itself succeeded."""
    try:
        return _views_answer(options, data)
    except _ErrorsUsage as usage:
        raise _ErrorsUsage(usage.faults + ["the call itself succeeded; only the view of its result failed"]) from None


def _app_option_fault(issue: Issue) -> str:
    """Return the usage fault of one invalid application option. Pure."""
    place = "--" + str(issue.location[0]).replace("_", "-") if issue.location else "application options"
    return f"{place}: {issue.message}"


def _app_missing_note(refusal: Error) -> str:
    return f"Managed commands are unavailable: {refusal.code}: {refusal.message}"


def _app_not_exposed(registry: Registry, name: str) -> Error | None:
    """Return the NOT_FOUND of a command that exists on other surfaces alone, saying how to opt in. Pure."""
    command = registry.get(name) or registry.get(name.replace("-", "_"))
    if command is None:
        return None
    return Error("NOT_FOUND", f"{command.name} is not a shell command: it is exposed on "
                 f"{', '.join(sorted(command.surfaces)) or 'no surface'} alone",
                 hint='the program can opt in with expose=("cli", ...) on the command or on the App')


def _app_failure(error: Error, hint: str | Callable[[Error], str | None] | None) -> dict[str, Any]:
    """Return the failure envelope: the error's wire form with code as "error", and the application's hint added."""
    wire = error.to_wire()
    wire = {"error": wire.pop("code"), **wire}
    try:
        added = hint(error) if callable(hint) else hint
    except (Exception, SystemExit):
        added = None
    if isinstance(added, str) and added:
        wire["hint"] = f"{error.hint} {added}" if error.hint else added
    try:
        _json_copy(wire)
    except _JsonFault:
        wire["details"] = {"message": "the details of this error have no JSON form"}
    return wire


def _app_width(env: Env) -> int:
    """Return how many columns help may use: COLUMNS, else the terminal's, else HELP_WIDTH_MAX_COLUMNS."""
    asked = env.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and 0 < len(asked) <= APP_COLUMNS_DIGITS:
        return int(asked)
    try:
        return os.get_terminal_size(env.stdout.fileno()).columns or HELP_WIDTH_MAX_COLUMNS
    except (AttributeError, OSError, ValueError):
        return HELP_WIDTH_MAX_COLUMNS


def _app_engine(engine: Engine | None) -> Engine:
    """Return the engine of a running line. Raises: Error where there is none, which no line reaches."""
    if engine is None:
        raise Error("INTERNAL_SERVER_ERROR", "no call is running")
    return engine


def _app_boundary(line: _AppLine, engine: Engine) -> Engine:
    """Return an engine's twin that knows every command; plans are checked and run by it. Raises: Error."""
    engine, surface = engine.twin(), line.app.surface()
    if surface.dynamic:
        engine.registry = _call_drive(line.resolve(surface, engine, False))
        if line.missing is not None:
            raise line.missing
    return engine


def _app_no_command(engine: Engine, utterance: str) -> Error:
    """Return the NOT_FOUND of a sentence that no command fits, with the commands nearest to its words. Pure."""
    names = [command.name for command in engine.registry.commands("agent") if not command.hidden]
    near: list[str] = []
    for word in utterance[:APP_UTTERANCE_CHARACTERS].split()[:APP_UTTERANCE_WORDS]:
        near += [name for name in _reg_near(word, names) if name not in near]
    shown = (near or names)[:APP_NAMES_SHOWN]
    tail = f"; the nearest commands are {', '.join(shown)}" if shown else "; no command is exposed to it"
    return Error("NOT_FOUND", "no command fits what was asked" + tail, details={"suggestions": shown})


def _app_plan_shown(plan: Plan) -> str:
    """Return a plan as numbered lines for people. Pure."""
    lines = []
    for number, step in enumerate(plan, 1):
        words = [f"{key}={_app_shown(value)}" for key, value in step.args.items()]
        mark = ["(destructive)"] if step.command.destructive else []
        bound = [f"-> ${step.output}"] if step.output else []
        lines.append(_env_human(" ".join([f"{number}.", step.tool, *words, *bound, *mark])))
    return "".join(line + "\n" for line in lines)


def _app_run_plan(ctx: Ctx, plan: Plan, confirmed: Any) -> dict[str, Any]:
    """Execute a plan for a command line and return its result; without an approval the terminal is asked.

    Raises: what the plan stopped with; its details hold the steps that ended too.
    """
    engine = plan._engine

    def ask(step: Any) -> bool:
        return ctx._env is not None and ctx._env.ask(_app_question(ctx.app, engine, step.admitted), "Go on?") is True

    if not ctx.options.quiet and not ctx._engine.capture:
        ctx.stderr.write(_app_plan_shown(plan))
    result = ctx.app.execute(plan, ask if confirmed is None else confirmed, ctx.dry_run, cancel=ctx.cancel)
    wire: dict[str, Any] = result.to_wire()
    if result.error is not None:
        kept = {key: wire[key] for key in ("steps", "rest") if wire.get(key)}
        details = wire["error"].get("details", {})
        hint = result.error.hint
        if result.error.code == "CONFIRMATION_REQUIRED" and confirmed is None:
            hint = hint or "pass --yes to confirm"
        raise Error(result.error.code, result.error.message, details=dict(details, **kept), hint=hint,
                    retryable=result.error.retryable, relayed=result.error.relayed)
    return wire


def ask_command(name: str = "ask") -> Command:
    """Return a native command that does what a sentence says: ``app ask "what is due tomorrow"``.

    The planner proposes commands of the agent surface, the plan is checked as a whole and shown on standard error, and
    destructive steps are asked for on the terminal, unless --yes confirms them. --dry-run shows what would happen.
    """

    def ask(ctx: Ctx, *words: str) -> dict[str, object]:
        """Do what a sentence says, by the commands of this program; ask before anything is destroyed."""
        sentence = " ".join(words)
        engine = _app_boundary(ctx.app._line(ctx._env, None), ctx._engine)
        plan = _plan_check(engine, ctx.app._propose(engine, sentence, None))
        if not len(plan):
            raise _app_no_command(engine, sentence)
        return _app_run_plan(ctx, plan, True if ctx.options.yes else None)

    recorded = native(name=name, previews=True, args={"words": Arg(min=1, help="a sentence")},
                      examples=('"what is due tomorrow"',))(ask)
    return _reg_command(recorded, default_expose=("cli",))


def _app_read_plan(ctx: Ctx, file: str) -> Plan:
    """Return the checked plan in a file, or with - on standard input. Raises: Error."""
    env = ctx._env or Env()
    text = _files_read(os.path.join(env.cwd, file), PLAN_TEXT_CHARACTERS) if file != "-" else b""
    if file == "-":
        stream = env.take_stdin()
        text = stream.read(PLAN_TEXT_CHARACTERS + 1) if stream is not None else b""
    engine = _app_boundary(ctx.app._line(env, None), ctx._engine)
    return _plan_check(engine, _plan_read(text))


def _app_check_command() -> Command:
    def check(ctx: Ctx, file: str = "-") -> dict[str, object]:
        """Check a plan as a whole and show its digest and its final arguments; nothing is called."""
        plan = _app_read_plan(ctx, file)
        steps = [{"step": index, "tool": step.tool, "args": step.args, "destructive": step.command.destructive}
                 for index, step in enumerate(plan)]
        return {"digest": plan.digest, **plan.to_wire(), "steps": steps}

    about = {"file": Arg(help=APP_PLAN_HELP)}
    return _reg_command(native(name="check", args=about)(check), default_expose=("cli",))


def _app_execute_command() -> Command:
    def execute(ctx: Ctx, file: str = "-", *, approve: str | None = None) -> dict[str, object]:
        """Check a plan and run it; destructive steps need --approve with its digest, --yes, or an answer."""
        return _app_run_plan(ctx, _app_read_plan(ctx, file), approve or (True if ctx.options.yes else None))

    about = {"file": Arg(help=APP_PLAN_HELP), "approve": Arg(help="the digest that check showed")}
    return _reg_command(native(name="execute", previews=True, args=about)(execute), default_expose=("cli",))


def _app_eval_command() -> Command:
    """Return the command that measures the planner of an application by a file of rows."""

    def eval_rows(file: str, ctx: Ctx) -> dict[str, object]:
        """Measure how well sentences become plans, by a file of rows; nothing is called."""
        data = _files_read(os.path.join((ctx._env or Env()).cwd, file), JSON_DOOR_BYTES)
        rows = []
        for number, text in enumerate(data.split(b"\n"), 1):
            try:
                rows += [_json_loads(text)] if text.strip() else []
            except _JsonFault as fault:
                raise Error("BAD_REQUEST", f"line {number} of {_json_show(file)} is no JSON: {fault}") from None
        return evaluate(ctx.app, rows)

    recorded = native(
        name="eval", args={"file": Arg(help='JSON lines of {"utterance", "plan" or "refuse": true, "now"?}')},
        present=lambda report, options: _json_dumps(report) + "\n" if options.json else report["text"] + "\n",
        exit_code=lambda report: int(report["bad"] > PLANNER_BAD_RATE or report["destructive"] > 0),
    )(eval_rows)
    return _reg_command(recorded, default_expose=("cli",))


APP_PLAN_HELP = "the plan, as a model wrote it: a file, or - for standard input"

#: What `python3 knaif.py KIND APP ...` mounts on an application that has it not.
APP_SERVED: dict[str, Callable[[], Command]] = {
    "stream": stream_command, "batch": batch_command, "ask": ask_command, "check": _app_check_command,
    "execute": _app_execute_command, "eval": _app_eval_command,
}


def completion_command(name: str = "completion") -> Command:
    """Return a native command that prints the completion script of its application: ``completion bash|zsh|fish``."""

    def completion(shell: str, ctx: Ctx) -> None:
        """Print a completion script for bash, zsh or fish."""
        ctx.stdout.write(ctx.app.completion(shell))

    recorded = native(name=name, args={"shell": Arg(choices=HELP_SHELLS)})(completion)
    return _reg_command(recorded, default_expose=("cli",))
# endregion APP


# region MAIN -- the commands of `python3 knaif.py`, main(), the guard
# needs: LIMITS ERRORS JSON ENV SCHEMA TYPES REG VIEWS HELP APP
# This file is a program of its own: an App whose commands look at other programs. APP names such a program:
#
#     file.py[:name]    a file (its name ends in .py, or the text holds a slash); name is the variable of its App
#     module:name       a module on sys.path, or in the current folder
#
# The program has its own copy of this module, perhaps another version. An App of it is known by its class's
# __knaif_app__, a protocol number, and driven only through describe, selftest, completion, main and serve, which
# give and take JSON-ready values. The folder of file.py, or the current one, is appended to sys.path last: no file
# beside a program is ever imported in the standard library's place.

#: Texts that no door may let in, one of each kind of fault.
MAIN_REFUSED_JSON = ('{"a":1,"a":2}', "[NaN]", "[1] 2", "[1,]", "'x'", '{"a" 1}', '"\ud800"', "01", "", "[" * 1000)

#: (schema, valid values, invalid values).
MAIN_SCHEMAS: tuple[tuple[Any, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ({"type": "integer", "minimum": 1}, (1, 2.0), (0, True, 1.5, "1")),
    ({"enum": [1, "a"]}, (1.0, "a"), (True, "b")),
    ({"type": "string", "pattern": "^a$"}, ("a",), ("a\n", "b")),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ([], ["a", "b"]), (["a", "a"], [1])),
    ({"type": "object", "required": ["a"], "additionalProperties": False, "properties": {"a": {}}},
     ({"a": None},), ({}, {"a": 1, "b": 2})),
)


MAIN_LEAVING = ("main", "serve")  # what an App answers by leaving the process
MAIN_REPORT = {"type": "object"}  # what the commands return: a description or a report, with its problems
MAIN_TEXTS = {"type": "array", "items": {"type": "string"}}
#: What an App of protocol 1 answers to describe(); another copy of this file may add to it.
MAIN_DESCRIPTION = {
    "type": "object", "required": ["name", "version", "commands", "problems"],
    "properties": {"name": {"type": "string"}, "version": {"type": "string"}, "problems": MAIN_TEXTS, "commands": {
        "type": "array", "items": {
            "type": "object", "required": ["name", "description", "surfaces", "flags"],
            "properties": {"name": {"type": "string"}, "description": {"type": "string"}, "surfaces": MAIN_TEXTS,
                           "flags": MAIN_TEXTS},
        },
    }},
}
#: Commands that a program's App answers itself: name -> (help, example).
MAIN_DRIVEN = {
    "run": ("Run a program; every word after its name is its own.", "run tasks.py add 'buy milk'"),
    "stream": ("Answer a line of JSON for each line of JSON; `stream APP --help` shows its options.",
               "stream tasks.py < lines.jsonl"),
    "batch": ("Answer lines so that a crash loses nothing and repeats nothing; `batch APP --help` shows its options.",
              "batch tasks.py lines.jsonl"),
    "check": ("Check a plan as a whole, call nothing; `check APP --help` shows its options.",
              "check tasks.py plan.json"),
    "execute": ("Check a plan and run it; `execute APP --help` shows its options.",
                "execute tasks.py plan.json --approve 3f..."),
    "ask": ("Do what a sentence says, ask before anything is destroyed; `ask APP --help` shows its options.",
            "ask tasks.py what is due tomorrow"),
    "eval": ("Measure how well sentences become plans; `eval APP --help` shows its options.",
             "eval tasks.py rows.jsonl"),
}
MAIN_VIEW_HELP = (
    "Answer a question about JSON records in place of showing them. "
    "The questions: --count-by, --sum (with --by for each group), --by with --top, --sort (with --ascending and "
    "--top), --table. The records: a JSON array, an object with one array in it, or JSON lines."
)
MAIN_LINES_ENDINGS = (".jsonl", ".ndjson")  # names of files whose every line is a record


def _main_app() -> App:
    """Return the App of this file. Pure."""
    app = App("knaif", __version__, description="Look at programs that carry this module, and run them")
    app.own_views = frozenset(("view",))
    app.native(name="view", args={
        "files": Arg(help="files of JSON or JSON lines, - for standard input, which is also read without any",
                     path=True),
        "strict": Arg(help="refuse a key that an object repeats; else its last value counts"),
    }, help=MAIN_VIEW_HELP, examples=("--count-by status < items.json", "--sum price --by shop orders.jsonl",
                                      "--sort size --top 5 --json", "--table id,owner.name items.json"))(_main_view)
    target = Arg(help="the program: file.py, file.py:name or module:name")
    surface = Opt(choices=REG_SURFACES, help="those of this surface alone")
    app.native(name="tools", args={"app": target, "surface": surface},
               returns=MAIN_REPORT, exit_code=_main_status)(_main_tools)
    app.native(name="schema", args={"app": target, "command": Opt(help="one command; without it all of them")},
               returns=MAIN_REPORT, exit_code=_main_status)(_main_schema)
    # The next two have results, so that descriptor 1 is standard error while a program is imported.
    for name, (about, example) in MAIN_DRIVEN.items():
        app.native(
            name=name, help=about, examples=(example,), returns={"type": "integer"}, present=lambda status, options: "",
            exit_code=lambda status: status,
            args={"app": Arg(rest=True, min=1, help="the program, then the words of its own line")},
        )(_main_driver(name))
    app.native(name="completion", args={
        "shell": Arg(choices=HELP_SHELLS, help="the shell the script is for"),
        "app": Opt(help="the program; without it this one"),
    }, returns={"type": "string"}, present=lambda script, options: script)(_main_completion)
    app.native(name="selftest", args={"app": Opt(help="the program; without it the module itself is tested")},
               returns=MAIN_REPORT, present=_main_report, exit_code=_main_status)(_main_selftest)
    return app


# -- the commands ------------------------------------------------------------------------------------------------------


def _main_view(ctx: Ctx, *files: str, strict: bool = False) -> None:
    """Print the view that the line asks for, of the records in files or standard input, as for a command's result.

    A file whose name ends in .jsonl or .ndjson holds lines alone. Memory does not grow with the input, unless --sort
    without --top, or --table, needs all of it. Raises: USAGE, NOT_FOUND, BAD_REQUEST.
    """
    import gc

    if not _views_is_asked(ctx.options):
        raise _ErrorsUsage(["view needs a question: --count-by, --sum, --by with --top, --sort, or --table"])
    fold = _ViewsFold(ctx.options)
    collects = gc.isenabled()
    gc.disable()  # records are trees: counting their references frees them, looking for cycles takes a tenth more time
    try:
        for name in files or ("-",):
            _main_feed(_main_env(ctx), fold, name, strict)
        result = fold.result()
        pretty, plain = not ctx.options.json, _main_env(ctx).out_ascii
        text = result if ctx.options.table else _json_dumps(result, pretty=pretty, ascii_only=plain)
    except _JsonFault as fault:
        raise Error("BAD_REQUEST", f"the answer cannot be written: {fault}") from None
    finally:
        if collects:
            gc.enable()
    ctx.stdout.write(text + "\n")


def _main_feed(env: Env, fold: _ViewsFold, name: str, strict: bool) -> None:
    """Read the records of one file, or of standard input, into a fold. Raises: NOT_FOUND, BAD_REQUEST, USAGE."""
    shown = "standard input" if name == "-" else _main_quote(name)
    try:
        stream = _main_open(env, name)
        try:
            reader = _ViewsReader(
                lambda size: _main_read(env, stream, size), shown, strict=strict,
                secret=int.from_bytes(env.random(MAIN_SECRET_BYTES), "big"), lines=name.endswith(MAIN_LINES_ENDINGS),
            )
            fold.begin()
            for batch in reader.batches():
                source = f" {'in' if reader.member else 'of'} {shown}" if name != "-" else ""
                fold.where = reader.member + source
                fold.add_all(batch)
        finally:
            if name != "-":
                stream.close()
    except FileNotFoundError:
        raise Error("NOT_FOUND", f"there is no file {shown}") from None
    except OSError as fault:
        raise Error("BAD_REQUEST", f"{shown} cannot be read: {fault.strerror}") from None


def _main_read(env: Env, stream: Any, size: int) -> bytes:
    """Return at most so many bytes, none at the end; waits for a stream that has none yet but does not block."""
    while True:
        data = stream.read(size)
        if data is not None:
            return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data)
        env.sleep(ENV_RETRY_SECONDS)


def _main_env(ctx: Ctx) -> Env:
    """Return the surroundings of a call: this file's own commands may read more of them than a handler should."""
    return ctx._env or Env()


def _main_open(env: Env, name: str) -> Any:
    """Return a file, or for "-" standard input, as a binary stream. Raises: USAGE for no input at all, OSError."""
    if name != "-":
        return open(name, "rb", buffering=0)
    if env.stdin is None or env.is_terminal("stdin"):
        raise _ErrorsUsage(["nothing is piped in: name files, or send JSON to standard input"])
    return env.stdin


def _main_tools(app: str, surface: str | None = None) -> dict[str, object]:
    """List the commands of a program and where each stands.

    withheld says why a command that leaves its surfaces to the application was left off some of them.
    """
    described = _main_describe(app)
    tools = []
    for command in described["commands"]:
        if surface is None or surface in command["surfaces"]:
            tool = {key: command[key] for key in ("name", "description", "surfaces", "flags")}
            if command.get("withheld"):
                tool["withheld"] = command["withheld"]
            tools.append(tool)
    listed = {"name": described["name"], "version": described["version"], "tools": tools}
    return _main_with_problems(listed, described["problems"])


def _main_schema(app: str, command: str | None = None) -> dict[str, object]:
    """Show what the commands of a program take and return, as JSON Schemas."""
    described = _main_describe(app)
    problems = described.pop("problems")
    if command is None:
        return _main_with_problems(described, problems)
    found: dict[str, object]
    for found in described["commands"]:
        if found["name"] == command:
            return found
    if problems:
        raise Error("NOT_FOUND", f"{app} has no sound command {command}", details={"problems": problems})
    raise _main_unknown(f"{app} has no command {command}", command, [item["name"] for item in described["commands"]])


def _main_with_problems(report: dict[str, object], problems: Sequence[str]) -> dict[str, object]:
    """Return a report with its problems, where there are any: so that else it holds one collection. Pure."""
    return dict(report, problems=problems) if problems else report


def _main_driver(name: str) -> Callable[..., int]:
    """Return the command that lets a program's App take over this process in one of the ways of MAIN_DRIVEN."""

    def drive(app: list[str], ctx: Ctx) -> int:
        if name == "run":
            return _main_drive(app, ctx, "main", app[1:])
        return _main_drive(app, ctx, "serve", name, app[1:], app[0])

    return drive


def _main_drive(app: list[str], ctx: Ctx, method: str, *given: Any) -> int:
    """Let a program's App take over this process, and return the exit status it ends with."""
    target, env = _main_load(app[0]), _main_env(ctx)
    if env.stdout is not None:
        env.write_out("")  # delivers what the import printed while that is still standard error
    env.give_back_stdout()
    sys.argv[:] = [_main_split(app[0])[0]] + app[1:]
    try:
        returned = _main_ask(app[0], target, method, *given)
    except SystemExit as end:
        return _main_status_of(end.code, env)
    raise Error("BAD_REQUEST", f"{method} of {app[0]} returned {_main_show(returned)} instead of ending the process")


def _main_status_of(code: Any, env: Env) -> int:
    """Return the exit status that sys.exit(code) means; text goes to standard error, as Python does it."""
    if code is None or isinstance(code, int):
        return (code or 0) & CALL_STATUS_MAX
    env.write_err(_main_show(code) + "\n")
    return ERRORS_EXIT_OTHER


def _main_completion(shell: str, ctx: Ctx, app: str | None = None) -> str:
    """Print the completion script of a program, or of this one."""
    target = ctx.app if app is None else _main_load(app)
    script = _main_ask(app or "this program", target, "completion", shell)
    _main_check(app or "this program", "completion", script, {"type": "string"})
    return str(script)


def _main_selftest(app: str | None = None) -> dict[str, object]:
    """Check a program and all its schemas, or this module itself."""
    if app is None:
        attempted, problems = _main_test_module()
        return {"tested": f"{attempted} examples and vectors", "version": __version__,
                "python": ".".join(map(str, sys.version_info[:3])), "problems": problems}
    problems = _main_ask(app, _main_load(app), "selftest")
    _main_check(app, "selftest", problems, MAIN_TEXTS)
    return {"tested": app, "problems": problems}


def _main_status(result: dict[str, Any]) -> int:
    """Return the exit code of a report: faulty registration where it names problems. Pure."""
    return exit_code("REGISTRATION_ERROR") if result.get("problems") else 0


def _main_report(result: dict[str, Any], options: Options) -> str:
    """Return a selftest's report as lines for people, or as JSON. Pure."""
    if options.json:
        return _json_dumps(result, ascii_only=True) + "\n"
    problems = [_env_human(text) for text in result["problems"]]
    verdict = "1 problem" if len(problems) == 1 else f"{len(problems) or 'no'} problems"
    return "\n".join(problems + [f"{_env_human(result['tested'])}: {verdict}"]) + "\n"


# -- finding and driving a program -------------------------------------------------------------------------------------


def _main_describe(text: str) -> dict[str, Any]:
    """Return what an App says of itself, every schema compiled."""
    described = _main_ask(text, _main_load(text), "describe")
    _main_check(text, "describe", described, MAIN_DESCRIPTION)
    copy: dict[str, Any] = _json_copy(described)
    return copy


def _main_ask(text: str, target: Any, method: str, *words: Any) -> Any:
    """Call a method of a program's App; whatever it raises becomes one refusal of this copy, but for leaving main."""
    try:
        return getattr(target, method)(*words)
    except KeyboardInterrupt:
        raise
    except BaseException as fault:
        if method in MAIN_LEAVING and isinstance(fault, SystemExit):
            raise
        refusal = _main_refusal(fault)
        raise refusal or Error("BAD_REQUEST", f"{method} of {text} failed: {_main_said(fault)}") from fault


def _main_refusal(fault: BaseException) -> Error | None:
    """Return the Error of another copy of this file as one of this copy; None for any other exception."""
    try:
        code, message, hint = (getattr(fault, name, None) for name in ("code", "message", "hint"))
    except Exception:
        return None
    if type(code) is not str or type(message) is not str:
        return None
    return Error(code, message, hint=hint if type(hint) is str else None)


def _main_check(text: str, method: str, value: Any, schema: Any) -> None:
    """Refuse an answer of a program's App that is none. Raises: BAD_REQUEST."""
    try:
        issues = Validator(schema).issues(_json_copy(value))
    except _JsonFault as fault:
        raise Error("BAD_REQUEST", f"{method} of {text} answered with {fault}") from None
    for issue in issues:
        place = f" at {issue.path}" if issue.path else ""
        raise Error("BAD_REQUEST", f"{method} of {text} answered with nonsense{place}: {issue.message}")


def _main_load(text: str) -> Any:
    """Import the program that APP names and return its App.

    Raises: BAD_REQUEST for text that names none and a program that cannot be imported, NOT_FOUND for what is not there.
    Runs the program's own top-level statements; one that starts its command line there is refused, and that line is
    made to be --version, so that no command of it runs by accident.
    """
    place, name = _main_split(text)
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    if not place or not is_file and not name:
        raise Error("BAD_REQUEST", f"{_main_quote(text)} names no program: write file.py, file.py:name or module:name")
    argv = sys.argv[:]
    sys.argv[:] = [place, "--version"]
    try:
        module = _main_import_file(place) if is_file else _main_import_module(place)
    except (Error, KeyboardInterrupt):
        raise
    except SystemExit as left:
        raise Error(
            "BAD_REQUEST", f"{place} ended the process while it was imported",
            hint="put app.main() under: if __name__ == \"__main__\":",
        ) from left
    except BaseException as fault:
        refusal = _main_refusal(fault)
        if refusal is not None:
            raise Error(refusal.code, f"{place}: {refusal.message}", hint=refusal.hint) from fault
        raise Error("BAD_REQUEST", f"{place} {_main_import_fault(fault, place)}") from fault
    finally:
        sys.argv[:] = argv
    return _main_pick(module, place, name)


def _main_import_fault(fault: BaseException, place: str) -> str:
    """Return why an import failed, as the end of a sentence that begins with the program's name. Pure."""
    if isinstance(fault, SyntaxError) and type(fault.msg) is str and type(fault.lineno) is int:
        names = [os.path.basename(str(path)) for path in (fault.filename, place)]
        return f"is no Python: {fault.msg} (line {fault.lineno}{'' if names[0] == names[1] else ' of ' + names[0]})"
    return f"failed while it was imported: {_main_said(fault)}"


def _main_split(text: str) -> tuple[str, str]:
    """Return where the program is and the name of its App, empty where none is given. Pure.

    >>> _main_split("shop.py:app"), _main_split("shop.py"), _main_split("acme.shop:app")
    (('shop.py', 'app'), ('shop.py', ''), ('acme.shop', 'app'))
    """
    place, separator, name = text.rpartition(":")
    return (place, name) if separator and name.isidentifier() else (text, "")


def _main_import_file(path: str) -> Any:
    """Import a file under its own name, or under another one where that name belongs to some other module."""
    import importlib.machinery
    import importlib.util

    if not os.path.isfile(path):
        raise Error("NOT_FOUND", f"there is no file {_main_quote(path)}")
    path = os.path.realpath(path)
    folder, base = os.path.split(path)
    name = base.partition(".")[0]
    other = None if not name.isidentifier() or name in sys.modules else importlib.util.find_spec(name)
    if not name.isidentifier() or name in sys.modules or other is not None and other.origin != path:
        name = f"_main_program_{abs(hash(path))}"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise Error("BAD_REQUEST", f"{_main_quote(path)} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    _main_append_path(folder)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _main_import_module(name: str) -> Any:
    """Import a module by its name, from sys.path and then from the current folder."""
    import importlib

    try:
        _main_append_path(os.path.abspath(os.curdir))
    except OSError:
        pass  # the current folder is gone, so nothing can be found in it
    if not all(part.isidentifier() for part in name.split(".")):
        raise Error("BAD_REQUEST", f"{_main_quote(name)} is no module name: write file.py, file.py:name or module:name")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as fault:
        if fault.name is not None and (name + ".").startswith(fault.name + "."):
            raise Error("NOT_FOUND", f"there is no module {name}") from None
        raise


def _main_append_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _main_pick(module: Any, place: str, name: str) -> Any:
    """Return the App of a module: the one of this name, or the only one. Raises: NOT_FOUND, BAD_REQUEST."""
    apps = {key: value for key, value in list(getattr(module, "__dict__", {}).items())
            if isinstance(key, str) and _main_protocol(value) is not None}
    if name and name not in apps:
        raise _main_unknown(f"{place} has no App named {name}", name, list(apps))
    if not apps:
        raise Error("NOT_FOUND", f"{place} has no App among its variables", hint="an App is made by: app = nk.App(...)")
    if not name:
        name = next(iter(apps))
        others = [key for key, value in apps.items() if value is not apps[name]]
        if others:
            raise Error("BAD_REQUEST", f"{place} has several Apps: {', '.join(apps)}",
                        hint=f"name one: {place}:{others[0]}")
    found = apps[name]
    protocol = _main_protocol(found)
    if type(protocol) is not int or protocol != APP_PROTOCOL:
        shown = f"protocol {_json_show(protocol)}" if type(protocol) is int else "a protocol that is no number"
        raise Error("BAD_REQUEST", f"{name} of {place} speaks {shown}, and this file speaks protocol {APP_PROTOCOL}",
                    hint="use the copy of this file that stands beside the program")
    return found


def _main_protocol(value: Any) -> Any:
    """Return the protocol number of an App of any copy of this file, and None for everything else."""
    try:
        return getattr(type(value), "__knaif_app__", None)
    except Exception:
        return None


def _main_unknown(sentence: str, name: str, names: Sequence[str]) -> Error:
    """Return NOT_FOUND with the nearest of the names that would have been found, and how many more there are. Pure."""
    import difflib

    near = difflib.get_close_matches(name, names[:REG_NEAR_CANDIDATES], REG_NEAR_NAMES, MAIN_NEAR_RATIO)
    near = near or list(names)[:REG_NEAR_NAMES]
    more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    return Error("NOT_FOUND", sentence, hint=f"there is: {', '.join(near)}{more}" if near else None)


def _main_said(fault: BaseException) -> str:
    """Return an exception of somebody else's code as one cut line. Pure."""
    return f"{type(fault).__name__}: {_main_show(fault)}"


def _main_show(value: Any) -> str:
    """Return what str() makes of a value of somebody else's code, which may fail, as one cut line. Pure."""
    try:
        return _main_quote(str(value))
    except BaseException:
        return "something that has no text"


def _main_quote(text: str) -> str:
    return _json_show(text, MAIN_QUOTED_CHARACTERS)


# -- selftest ----------------------------------------------------------------------------------------------------------


def _main_test_module() -> tuple[int, list[str]]:
    """Run the examples of all docstrings and the vectors above; return how many there were and what failed."""
    import doctest

    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(sys.modules[__name__], "module"):
        failed = runner.run(test, out=lambda text: None).failed
        if failed:
            said.append(f"{test.name}: {failed} of its {len(test.examples)} examples fail")
    said.extend(_main_test_vectors())
    return runner.summarize(verbose=False).attempted + len(MAIN_REFUSED_JSON) + len(MAIN_SCHEMAS), said


def _main_test_vectors() -> Iterator[str]:
    """Yield a sentence for each vector that does not hold. Pure."""
    for text in MAIN_REFUSED_JSON:
        try:
            _json_loads(text)
        except _JsonFault:
            continue
        yield f"the JSON text {_json_show(text)} was let in"
    for schema, valid, invalid in MAIN_SCHEMAS:
        validator = Validator(schema)
        for value in valid + invalid:
            if validator.is_valid(value) != any(value is good for good in valid):
                yield f"{_json_show(value)} was misjudged by {_json_show(schema)}"


if __name__ == "__main__":
    _main_app().main()
# endregion MAIN



# MIT License
#
# Copyright (c) 2026 the knaif authors
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
# documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
# rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
# persons to whom the Software is furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
# Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
# WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
# COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
# OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
