"""The layout of knaif.py: what keeps a single long file readable is kept by a machine.

A rule is a function that takes a Source and yields problems, each "LINE: what is wrong". The module must have none;
and each rule must refuse the sources that BROKEN lists for it, so that no rule can pass by looking at nothing.
Scopes come from symtable, which is exact, not from guessing at names.
"""
from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
import symtable

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULE = "knaif"
PATH = os.path.join(ROOT, MODULE + ".py")

#: Objects that all surfaces share: they stand bare although __all__ does not list them.
SHARED = frozenset("Shape Field Call Admitted Approval Engine Sandbox Options Env Profile".split())

FUNCTION_LINES = 60
CLASS_LINES = 400
CLASSES = 60  # each costs start-up time
SECTION_LINES = 1200
NINE_IN_TEN_LINES = 40  # 90 of 100 functions are shorter
PURPOSE_LINES = (3, 10)  # at least so many comment lines open a section, at most so many of them prose
UNDOCUMENTED_LINES = 15  # a private function this long needs no docstring, a longer one does
LINE_CHARACTERS = 120

#: Numbers that are facts rather than limits: bytes and ASCII, milliseconds, the Gregorian calendar.
PLAIN_NUMBERS = frozenset((0.5, 100, 127, 128, 255, 256, 366, 400, 1000))
LARGEST_PLAIN_NUMBER = 99
INFINITY = float("inf")
UNIT = re.compile(r"_(BYTES|OCTETS|CHARACTERS|DIGITS|LEVELS|LINES|MS|SECONDS|STEPS|NODES|FILES)$")

#: Contact with the world outside, which goes through Env alone so that a test can replace it.
OUTSIDE = {
    "os": "environ environb getenv getenvb putenv getcwd getcwdb urandom".split(),
    "sys": "stdin stdout stderr __stdin__ __stdout__ __stderr__ argv".split(),
    "time": "time time_ns monotonic monotonic_ns perf_counter sleep".split(),
}
MAY_EXIT = frozenset((None, "APP", "MAIN"))  # None: the head and the tail
FORBIDDEN_CALLS = frozenset("globals locals vars exec __import__ print input exit quit breakpoint".split())
EVALUATING = frozenset(("eval", "compile"))
MUTATORS = frozenset("append extend insert add update setdefault pop popitem clear remove discard sort".split())
PURE_BUILTINS = frozenset(
    "frozenset tuple range bytes object len type map dict zip sorted chr ord str int float min max sum".split()
)
MARK = "_ErrorsMark"  # an object() with a name, which any section may make

OPENS = re.compile(r"^# region ([A-Z0-9]+) -- (.+)$")
CLOSES = re.compile(r"^# endregion ([A-Z0-9]+)$")
NEEDS = re.compile(r"^# needs: (.+)$")
INDEX_ROW = re.compile(r"^  ([A-Z0-9]+)\s{2,}(.+)$")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = FUNCTIONS + (ast.ClassDef,)


class Section:
    """One region of the file: its id, title, first and last line, and what it says it needs."""

    def __init__(self, name, title, first):
        self.name = name
        self.title = title
        self.first = first
        self.last = None  #: line of the endregion marker, None while open
        self.needs = None  #: frozenset of section ids, None without a needs line
        self.opening = 0  #: comment lines between the needs line and the code
        self.prose = 0  #: those of them that are not indented, as a grammar or a figure is


class Source:
    """A module's text, its tree, its sections and the home of every top-level name."""

    def __init__(self, text):
        self.text = text
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.marker_problems = []
        self.sections = []
        self._read_markers()
        self.owners = [None] * (len(self.lines) + 1)  #: line -> section id
        for section in self.sections:
            last = section.last or len(self.lines)
            self.owners[section.first : last + 1] = [section.name] * (last + 1 - section.first)
        self.nodes = [node for node in ast.walk(self.tree) if hasattr(node, "lineno")]
        self.rank = {section.name: position for position, section in enumerate(self.sections)}
        self.homes = {}  #: name -> (section id or None, line)
        for statement in self.tree.body:
            for name in bound_names(statement):
                self.homes.setdefault(name, (self.section_at(statement.lineno), statement.lineno))
        self.public = public_names(self.tree)
        self._uses = None  #: found when first asked for

    def _read_markers(self):
        current, counting = None, False
        for number, line in enumerate(self.lines, 1):
            opens, closes, needs = OPENS.match(line), CLOSES.match(line), NEEDS.match(line)
            if opens:
                if current is not None:
                    self.marker_problems.append("%d: region %s opens inside %s" % (number, opens[1], current.name))
                current = Section(opens[1], opens[2], number)
                self.sections.append(current)
            elif closes:
                if current is None or closes[1] != current.name:
                    self.marker_problems.append("%d: endregion %s closes nothing" % (number, closes[1]))
                else:
                    current.last = number
                current = None
            elif needs and current is not None and current.needs is None:
                current.needs = frozenset(() if needs[1] == "(nothing)" else needs[1].split())
                counting = True
            elif counting and current is not None and line.startswith("#"):
                current.opening += 1
                current.prose += line.startswith("# ") and not line.startswith("#  ")
            else:
                counting = False
        if current is not None:
            self.marker_problems.append("%d: region %s is never closed" % (current.first, current.name))

    def section_at(self, line):
        """Return the id of the section that holds a line, None for the head and the tail."""
        return self.owners[line]

    def uses(self):
        """Return (section id, used section id, name, line) for every name that a section takes from another one."""
        if self._uses is None:
            self._uses = list(self._find_uses())
        return self._uses

    def _find_uses(self):
        for statement in self.tree.body:
            here = self.section_at(statement.lineno)
            if here is None:
                continue
            first = min([statement.lineno] + [d.lineno for d in getattr(statement, "decorator_list", [])])
            for name in sorted(read_names("\n".join(self.lines[first - 1 : statement.end_lineno]))):
                home = self.homes.get(name, (None, 0))[0]
                if home is not None and home != here:
                    at = [n.lineno for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
                    yield here, home, name, min(at) if at else statement.lineno

    def walk(self, *kinds):
        """Yield (node, section id) for every node of these kinds that has a line."""
        for node in self.nodes:
            if isinstance(node, kinds):
                yield node, self.section_at(node.lineno)

    def spelling(self, node):
        """Return the characters of a node that stands on one line."""
        line = self.lines[node.lineno - 1].encode("utf-8")
        return line[node.col_offset : node.end_col_offset].decode("utf-8", "replace")


def public_names(tree):
    """Return what __all__ lists, in its order."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in statement.targets):
            return ast.literal_eval(statement.value)
    return []


def bound_names(statement):
    """Return the names that a top-level statement binds, through its branches too."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    names = set()
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With)):
        names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for field in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(statement, field, []) or []:
            for inner in child.body if isinstance(child, ast.ExceptHandler) else [child]:
                names |= bound_names(inner)
    return names


def read_names(text):
    """Return the global names that a piece of source reads, in any scope of it."""
    top = symtable.symtable(text, "<segment>", "exec")
    names, tables = set(), [top]
    while tables:
        table = tables.pop()
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
        tables.extend(table.get_children())
    return names


def length(node):
    """Return how many lines a definition has."""
    return node.end_lineno - node.lineno + 1


def is_public(name):
    return not name.startswith("_")


# Rules: order and size


def rule_markers(source):
    """Every region closes before the next one opens."""
    return source.marker_problems


def rule_index(source):
    """The SECTIONS index of the docstring says the same as the markers, in the same order."""
    docstring = ast.get_docstring(source.tree, clean=False) or ""
    rows = [row.groups() for row in map(INDEX_ROW.match, docstring.partition("\nSECTIONS\n")[2].split("\n")) if row]
    markers = [(section.name, section.title) for section in source.sections]
    for row, marker in zip(rows + [None] * len(markers), markers + [None] * len(rows)):
        if row != marker:
            yield "1: the index says %r where the file has %r" % (row, marker)
            return


def rule_one_home(source):
    """No top-level name is bound twice."""
    seen = {}
    for statement in source.tree.body:
        for name in sorted(bound_names(statement)):
            if name in seen and source.section_at(statement.lineno) is not None:
                yield "%d: %s is bound again (first at %d)" % (statement.lineno, name, seen[name])
            seen.setdefault(name, statement.lineno)


def rule_reads_upwards(source):
    """A section uses only itself and the sections above it."""
    for here, home, name, line in source.uses():
        if source.rank[home] > source.rank[here]:
            yield "%d: %s uses %s of %s, a section below it" % (line, here, name, home)


def rule_code_in_sections(source):
    """Between the first and the last section no code stands outside a section."""
    for statement in source.tree.body:
        if source.sections and source.section_at(statement.lineno) is None:
            if source.sections[0].first < statement.lineno < (source.sections[-1].last or 0):
                yield "%d: code between sections" % statement.lineno


def rule_needs(source):
    """The needs line names exactly the sections used."""
    used = {section.name: set() for section in source.sections}
    for here, home, _, _ in source.uses():
        used[here].add(home)
    for section in source.sections:
        if section.needs is None:
            yield "%d: region %s has no needs line" % (section.first, section.name)
        elif section.needs != used[section.name]:
            words = " ".join(sorted(used[section.name], key=source.rank.get)) or "(nothing)"
            yield "%d: region %s should say: # needs: %s" % (section.first, section.name, words)


def rule_purpose(source):
    """Each section opens with a few comment lines: purpose, invariants, grammar."""
    low, high = PURPOSE_LINES
    for section in source.sections:
        if section.opening < low or section.prose > high:
            what = (section.first, section.name, section.opening, section.prose)
            yield "%d: region %s opens with %d comment lines, %d of prose" % what


def rule_sizes(source):
    """Functions, classes, sections and lines stay short, and there are few classes."""
    functions = [node for node, _ in source.walk(*FUNCTIONS)]
    classes = [node for node, _ in source.walk(ast.ClassDef)]
    for nodes, limit in ((functions, FUNCTION_LINES), (classes, CLASS_LINES)):
        for node in nodes:
            if length(node) > limit:
                yield "%d: %s has %d lines (limit %d)" % (node.lineno, node.name, length(node), limit)
    lengths = sorted(map(length, functions))
    if lengths and lengths[len(lengths) * 9 // 10] >= NINE_IN_TEN_LINES:
        yield "1: of ten functions one has %d lines (limit %d)" % (lengths[len(lengths) * 9 // 10], NINE_IN_TEN_LINES)
    if len(classes) > CLASSES:
        yield "1: %d classes (limit %d)" % (len(classes), CLASSES)
    for section in source.sections:
        if (section.last or 0) - section.first > SECTION_LINES:
            lines = section.last - section.first
            yield "%d: region %s has %d lines (limit %d)" % (section.first, section.name, lines, SECTION_LINES)


def rule_line_length(source):
    """Lines fit a screen, but for lists of needs, which tools read; they carry no blanks at their end."""
    for number, line in enumerate(source.lines, 1):
        if len(line) > LINE_CHARACTERS and not line.startswith("# needs: "):
            yield "%d: %d characters (limit %d)" % (number, len(line), LINE_CHARACTERS)
        if line != line.rstrip() or "\t" in line:
            yield "%d: a blank at the end, or a tab" % number


# Rules: names and words


def rule_prefixes(source):
    """Private names carry their section; constants too; what has no prefix is public or shared."""
    for name, (section, line) in sorted(source.homes.items(), key=lambda item: item[1][1]):
        if section is None or name in source.public or name in SHARED:
            continue
        word = section.lower()
        if section == "LIMITS":
            good = name.partition("_")[0] in source.rank
            wanted = "<SECTION>_<WHAT>"
        elif name.isupper():
            good, wanted = name.startswith(section + "_"), section + "_..."
        elif name.lstrip("_")[:1].isupper():
            good, wanted = name.startswith("_" + word.title()), "_%s..." % word.title()
        else:
            good, wanted = name.startswith("_%s_" % word), "_%s_..." % word
        if not good:
            yield "%d: %s in %s should be named %s, or stand in __all__" % (line, name, section, wanted)


def rule_public_names(source):
    """__all__ lists, in file order, public names that exist."""
    lines = []
    for name in source.public:
        if name not in source.homes:
            yield "1: __all__ lists %s, which nothing binds" % name
        elif not is_public(name):
            yield "1: __all__ lists %s, a private name" % name
        else:
            lines.append(source.homes[name][1])
    if lines != sorted(lines):
        yield "1: __all__ is not in file order"


def rule_docstrings(source):
    """Whatever is public says what it does; so does whatever is private and long."""
    for owner, _ in _owners(source):
        for node in owner.body:
            if not isinstance(node, DEFINITIONS) or ast.get_docstring(node):
                continue
            if any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list):
                continue  # the property says it
            is_method = isinstance(owner, ast.ClassDef)
            if is_public(node.name) and (not is_method or is_public(owner.name)):
                yield "%d: %s is public and has no docstring" % (node.lineno, node.name)
    for node, _ in source.walk(*DEFINITIONS):
        special = node.name.startswith("__") and node.name.endswith("__")
        if not special and length(node) > UNDOCUMENTED_LINES and not ast.get_docstring(node):
            yield "%d: %s has %d lines and no docstring" % (node.lineno, node.name, length(node))


def _owners(source):
    yield source.tree, None
    for node, section in source.walk(ast.ClassDef):
        yield node, section


def rule_annotations(source):
    """Every parameter and every result has a type."""
    for node, _ in source.walk(*FUNCTIONS):
        given = node.args
        parameters = given.args + given.kwonlyargs + [extra for extra in (given.vararg, given.kwarg) if extra]
        for parameter in parameters:
            if parameter.annotation is None and parameter.arg not in ("self", "cls"):
                yield "%d: the parameter %s of %s has no type" % (node.lineno, parameter.arg, node.name)
        if node.returns is None:
            yield "%d: the result of %s has no type" % (node.lineno, node.name)


def rule_attributes(source):
    """An attribute says what it holds where it is set: a comment with a colon (#:) on its lines or just above."""
    for node, _ in source.walk(ast.ClassDef):
        for method in node.body:
            if not isinstance(method, FUNCTIONS) or method.name != "__init__":
                continue
            for statement in method.body:
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                names = [n.attr for t in targets for n in ast.walk(t or statement) if isinstance(n, ast.Attribute)]
                around = source.lines[statement.lineno - 2 : statement.end_lineno]
                said = any("#: " in line for line in around)
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and any(map(is_public, names)) and not said:
                    yield "%d: the attribute %s does not say what it holds" % (statement.lineno, names[0])


def rule_comments(source):
    """Comments say why: no unfinished marks, no code that was switched off."""
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b|NotImplemented" r"Error")
    for number, line in enumerate(source.lines, 1):
        if marks.search(line):
            yield "%d: an unfinished mark" % number
        comment = re.match(r"^ +# (.+)$", line)
        if comment and _is_code(comment[1]):
            yield "%d: code that was switched off: %s" % (number, comment[1])


def _is_code(text):
    """Tell whether a comment's text is a statement that does something."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    doing = (ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Import, ast.ImportFrom, ast.Delete)
    return any(isinstance(s, doing) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) for s in body)


def rule_own_name(source):
    """Vendored under another name the module works unchanged: it never writes its own name in code."""
    docstrings = {id(node.body[0].value) for node in [source.tree] + source.nodes if _has_docstring(node)}
    for node, section in source.walk(ast.Name, ast.Import, ast.ImportFrom, ast.Constant):
        if isinstance(node, ast.Name):
            said = node.id == MODULE
        elif isinstance(node, ast.Constant):
            said = isinstance(node.value, str) and re.search(r"\b%s\b" % MODULE, node.value) is not None
            said = said and section not in (None, "MAIN") and id(node) not in docstrings
        else:
            said = MODULE in [alias.name for alias in node.names] + [getattr(node, "module", None)]
        if said:
            yield "%d: the module's own name" % node.lineno


def _has_docstring(node):
    return isinstance(node, (ast.Module,) + DEFINITIONS) and ast.get_docstring(node, clean=False) is not None


# Rules: state, effects, numbers


def rule_statements(source):
    """No way round the order and no hidden state: no global, assert, bare except, exec; one eval, in TYPES."""
    seen = []
    for node, section in source.walk(ast.Global, ast.Assert, ast.ExceptHandler, ast.Call):
        if isinstance(node, ast.Global):
            yield "%d: global %s" % (node.lineno, ", ".join(node.names))
        elif isinstance(node, ast.Assert):
            yield "%d: assert (gone under -O)" % node.lineno
        elif isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield "%d: bare except" % node.lineno
        elif isinstance(node.func, ast.Name):
            if node.func.id in FORBIDDEN_CALLS:
                yield "%d: %s()" % (node.lineno, node.func.id)
            if node.func.id in EVALUATING:
                seen.append(node.func.id)
                if section != "TYPES" or seen.count(node.func.id) > 1:
                    what = (node.lineno, node.func.id)
                    yield "%d: %s() (one is allowed, in TYPES, for the text of annotations)" % what


def rule_exits(source):
    """A library does not end the process: raising SystemExit and sys.exit stand in the head, APP and MAIN alone."""
    for node, section in source.walk(ast.Raise, ast.Attribute):
        if section in MAY_EXIT:
            continue
        if isinstance(node, ast.Attribute):
            if (getattr(node.value, "id", ""), node.attr) in (("sys", "exit"), ("os", "_exit"), ("os", "abort")):
                yield "%d: %s.%s outside APP and MAIN" % (node.lineno, node.value.id, node.attr)
        elif any(isinstance(n, ast.Name) and n.id == "SystemExit" for n in ast.walk(node)):
            yield "%d: raises SystemExit outside APP and MAIN" % node.lineno


def rule_outside(source):
    """The environment, the standard streams and the clock are reached through ENV."""
    for node, section in source.walk(ast.Attribute, ast.ImportFrom):
        if section in (None, "ENV"):
            continue
        if isinstance(node, ast.ImportFrom):
            found = [a.name for a in node.names if a.name in OUTSIDE.get(node.module or "", ())]
        else:
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found = [node.attr] if node.attr in OUTSIDE.get(owner, ()) else []
        if found == ["argv"] and section == "MAIN":
            continue  # a program that is run sees its own line there
        if found:
            yield "%d: %s is reached past Env" % (node.lineno, found[0])


def rule_imports(source):
    """At the top sys and os alone; inside functions whatever the standard library has."""
    standard = getattr(sys, "stdlib_module_names", None)
    for node, _ in source.walk(ast.Import, ast.ImportFrom):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules:
            if standard is not None and module.split(".")[0] not in standard:
                yield "%d: import of %s, which is not in the standard library" % (node.lineno, module)
    for statement in source.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            modules = [a.name for a in statement.names] if isinstance(statement, ast.Import) else [statement.module]
            for module in modules:
                if module not in ("__future__", "os", "sys"):
                    yield "%d: import of %s at the top, paid by every start" % (statement.lineno, module)


def rule_top_level(source):
    """Nothing runs at import but definitions and constant tables, and no table is ever changed."""
    tables = set()
    for statement in source.tree.body:
        section = source.section_at(statement.lineno)
        if section is None or isinstance(statement, DEFINITIONS):
            continue
        if isinstance(statement, ast.If) and section == "MAIN" and "__main__" in ast.dump(statement.test):
            continue
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            yield "%d: a statement that runs at import" % statement.lineno
            continue
        tables |= bound_names(statement)
        for problem in _impure(statement, section):
            yield "%d: %s" % (statement.lineno, problem)
    for node, _ in source.walk(ast.Subscript, ast.Call):
        target = node.value if isinstance(node, ast.Subscript) else getattr(node.func, "value", None)
        if not isinstance(target, ast.Name) or target.id not in tables:
            continue
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield "%d: the table %s is changed" % (node.lineno, target.id)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in MUTATORS:
            yield "%d: the table %s is changed by %s" % (node.lineno, target.id, node.func.attr)


def _impure(statement, section):
    """Yield what a top-level assignment holds that is more than a constant."""
    if isinstance(statement.value, (ast.List, ast.Set, ast.ListComp, ast.SetComp)):
        yield "a list or set at the top level; write a tuple or frozenset"
    later = {id(n) for node in ast.walk(statement) if isinstance(node, ast.Lambda) for n in ast.walk(node)}
    for node in ast.walk(statement.value) if statement.value is not None else ():
        if id(node) in later:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name not in PURE_BUILTINS and name != MARK and not name.startswith("_" + section.title()):
                yield "%s() runs at import" % name


def rule_numbers(source):
    """A limit stands in LIMITS: elsewhere code has small numbers, tables have data, and a named fact its source."""
    for statement in source.tree.body:
        section = source.section_at(statement.lineno)
        if section in (None, "LIMITS"):
            continue
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            value = _number(statement.value) if statement.value is not None else None
            names = bound_names(statement)
            explained = "  # " in source.lines[statement.lineno - 1]
            limiting = value is not None and (_is_large(source, statement.value) or any(map(UNIT.search, names)))
            if limiting and not explained:
                yield "%d: %s is a limit and belongs in LIMITS, or a fact and names its source" % (
                    (statement.lineno, min(names))
                )
            continue
        folded = set()
        for node in ast.walk(statement):
            if isinstance(node, (ast.BinOp, ast.Constant)) and id(node) not in folded and _is_large(source, node):
                folded.update(map(id, ast.walk(node)))
                yield "%d: the bare number %s; give it a name in LIMITS" % (node.lineno, _number(node))


def _number(node):
    """Return the number that a constant expression stands for, None where it is none."""
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        return node.value if plain else None
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Pow):
            return left**right
        if isinstance(node.op, ast.LShift):
            return left << right
    return None


def _is_large(source, node):
    """Tell whether a node is a number that wants a name; code points, masks and modes (0x, 0o) do not."""
    number = _number(node)
    if number is None or number in PLAIN_NUMBERS:
        return False
    if isinstance(number, float):
        return number not in (INFINITY, -INFINITY) and (number != int(number) or number > LARGEST_PLAIN_NUMBER)
    spelling = source.spelling(node) if isinstance(node, ast.Constant) else ""
    return number > LARGEST_PLAIN_NUMBER and spelling[:2].lower() not in ("0x", "0o", "0b")


def rule_limits_have_reasons(source):
    """Each limit says on its own line what it counts and why it has this size."""
    for statement in source.tree.body:
        if source.section_at(statement.lineno) == "LIMITS" and "  # " not in source.lines[statement.end_lineno - 1]:
            yield "%d: a limit without its reason on the line" % statement.lineno


def rule_error_codes(source):
    """Every code that is raised stands in the one table, and the table is sorted."""
    table = None
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "ERRORS_EXIT_CODES":
            table = list(ast.literal_eval(statement.value))
            if table != sorted(table):
                yield "%d: ERRORS_EXIT_CODES is not sorted" % statement.lineno
    for node, _ in source.walk(ast.Call):
        name = getattr(node.func, "id", "")
        if name == "Error" and table is not None and node.args and isinstance(node.args[0], ast.Constant):
            if node.args[0].value not in table:
                yield "%d: the code %s stands in no table" % (node.lineno, node.args[0].value)


def rule_old_grammar(source):
    """Python 3.7 can read the file, so that it can say in one line that it is too old."""
    try:
        ast.parse(source.text, feature_version=(3, 7))
    except SyntaxError as fault:
        yield "%d: %s" % (fault.lineno or 1, fault.msg)
    for node, _ in source.walk(ast.expr, *FUNCTIONS):
        if type(node).__name__ == "NamedExpr":
            yield "%d: an assignment expression" % node.lineno
        if getattr(getattr(node, "args", None), "posonlyargs", None):
            yield "%d: positional-only parameters" % node.lineno


RULES = tuple(value for name, value in sorted(globals().items()) if name.startswith("rule_"))

GOOD = '''\
#!/usr/bin/env python3
"""tiny: a module that keeps every rule.

SECTIONS
  LIMITS  every number
  ERRORS  the table
  JSON    reading
  MAIN    the guard

Stability: none.
"""
from __future__ import annotations

import os
import sys

__all__ = [
    "Error",  # ERRORS
    "loads",  # JSON
]


# region LIMITS -- every number
# needs: (nothing)
# One line,
# two lines,
# three lines.
JSON_DEPTH_LEVELS = 128  # levels: deep enough
# endregion LIMITS


# region ERRORS -- the table
# needs: (nothing)
# One line,
# two lines,
# three lines.
ERRORS_EXIT_CODES = {
    "CONFLICT": 5,
    "USAGE": 64,
}


class Error(Exception):
    """Refuse."""

    def __init__(self, code: str) -> None:
        self.code = code  #: what

    def to_wire(self) -> dict:
        """Return the object."""
        return {}
# endregion ERRORS


# region JSON -- reading
# needs: LIMITS ERRORS
# One line,
# two lines,
# three lines.
JSON_WORDS = ("true", "false")


class _JsonFault(Error):
    pass


def loads(text: str) -> object:
    """Read. Pure."""
    return _json_read(text, JSON_DEPTH_LEVELS)


def _json_read(text: str, depth: int) -> object:
    if text in JSON_WORDS and 0x10FFFF > depth:
        raise Error("CONFLICT", "no")
    return None
# endregion JSON


# region MAIN -- the guard
# needs: JSON
# One line,
# two lines,
# three lines.
def _main_run() -> None:
    loads("")
    sys.exit(0)


if __name__ == "__main__":
    _main_run()
# endregion MAIN
'''

READ = "    return None\n# endregion JSON"
LONG = "".join("    depth = %d\n" % (n % 9) for n in range(61))

#: For each rule: (what is replaced in GOOD, by what, a part of the problem that must be reported).
BROKEN = {
    rule_markers: [
        ("# endregion JSON\n", "", "region MAIN opens inside JSON"),
        ("# endregion MAIN\n", "", "region MAIN is never closed"),
        ("# endregion JSON\n", "# endregion JASON\n", "endregion JASON closes nothing"),
    ],
    rule_index: [
        ("  JSON    reading\n", "", "the index says ('MAIN', 'the guard') where"),
        ("  JSON    reading\n", "  JSON    writing\n", "('JSON', 'writing') where the file has ('JSON', 'reading')"),
        ("  MAIN    the guard\n", "  MAIN    the guard\n  MORE    text\n", "('MORE', 'text') where the file has None"),
    ],
    rule_one_home: [("JSON_WORDS = (", "JSON_WORDS = ()\nJSON_WORDS = (", "JSON_WORDS is bound again")],
    rule_reads_upwards: [
        ("        return {}", "        return loads('')", "ERRORS uses loads of JSON, a section below it"),
        ("    def to_wire(self) -> dict", "    def to_wire(self) -> _JsonFault", "ERRORS uses _JsonFault of JSON"),
    ],
    rule_code_in_sections: [("# region JSON", "import re\n# region JSON", "code between sections")],
    rule_needs: [
        ("# needs: LIMITS ERRORS\n", "# needs: LIMITS\n", "region JSON should say: # needs: LIMITS ERRORS"),
        ("# needs: JSON\n", "# needs: LIMITS JSON\n", "region MAIN should say: # needs: JSON"),
        ("# needs: JSON\n", "", "region MAIN has no needs line"),
    ],
    rule_purpose: [("# needs: JSON\n# One line,\n", "# needs: JSON\n", "opens with 2 comment lines, 2 of prose")],
    rule_sizes: [
        (READ, LONG + READ, "_json_read has 65 lines (limit 60)"),
        (READ, "    depth = 1\n" * 45 + READ, "of ten functions one has"),
        ("JSON_WORDS", "\n".join("class _JsonC%d: pass" % n for n in range(61)) + "\nJSON_WORDS", "63 classes"),
        ("class _JsonFault(Error):\n", "class _JsonFault(Error):\n" + "    #\n" * 401, "_JsonFault has 403 lines"),
        ("JSON_WORDS", "#\n" * 1201 + "JSON_WORDS", "region JSON has 12"),
    ],
    rule_line_length: [
        ("    return None", "    return None  #" + "x" * 110, "characters (limit 120)"),
        ("    return None", "    return None ", "a blank at the end"),
    ],
    rule_prefixes: [
        ("def _json_read", "def _read", "_read in JSON should be named _json_..."),
        ("def _json_read", "def read", "read in JSON should be named _json_..., or stand in __all__"),
        ("class _JsonFault", "class _Fault", "_Fault in JSON should be named _Json..."),
        ("JSON_WORDS = ", "WORDS = ", "WORDS in JSON should be named JSON_..."),
        ("JSON_DEPTH_LEVELS = ", "DEPTH_LEVELS = ", "DEPTH_LEVELS in LIMITS should be named <SECTION>_<WHAT>"),
    ],
    rule_public_names: [
        ('    "loads",', '    "dumps",', "__all__ lists dumps, which nothing binds"),
        ('    "loads",', '    "_json_read",', "__all__ lists _json_read, a private name"),
        ('    "Error",  # ERRORS\n    "loads",', '    "loads",\n    "Error",', "__all__ is not in file order"),
    ],
    rule_docstrings: [
        ('    """Read. Pure."""\n', "", "loads is public and has no docstring"),
        ('        """Return the object."""\n', "", "to_wire is public and has no docstring"),
        (READ, "    depth = 1\n" * 13 + READ, "_json_read has 17 lines and no docstring"),
    ],
    rule_annotations: [
        ("_json_read(text: str, depth", "_json_read(text, depth", "the parameter text of _json_read has no type"),
        ("depth: int) -> object:", "depth: int):", "the result of _json_read has no type"),
    ],
    rule_attributes: [("  #: what", "", "the attribute code does not say what it holds")],
    rule_comments: [
        ("    return None", "    # TO" + "DO: more\n    return None", "an unfinished mark"),
        ("    return None", "    # depth = 3\n    return None", "code that was switched off: depth = 3"),
        ("    return None", "    # loads('x')\n    return None", "code that was switched off"),
    ],
    rule_own_name: [
        ("    return None", "    import knaif\n    return None", "the module's own name"),
        ("    return None", "    from knaif import App\n    return None", "the module's own name"),
        ("    return None", "    return sys.modules['knaif']", "the module's own name"),
    ],
    rule_statements: [
        ("    return None", "    global JSON_WORDS\n    return None", "global JSON_WORDS"),
        ("    return None", "    assert text\n    return None", "assert (gone under -O)"),
        ("    return None", "    try:\n        pass\n    except:\n        pass\n    return None", "bare except"),
        ("    return None", "    exec(text)\n    return None", "exec()"),
        ("    return None", "    return eval(text)", "eval() (one is allowed, in TYPES"),
        ("    return None", "    print(text)\n    return None", "print()"),
    ],
    rule_exits: [
        ("    return None", "    raise SystemExit(1)", "raises SystemExit outside APP and MAIN"),
        ("    return None", "    sys.exit(1)", "sys.exit outside APP and MAIN"),
    ],
    rule_outside: [
        ("    return None", "    return os.environ", "environ is reached past Env"),
        ("    return None", "    return sys.stdout", "stdout is reached past Env"),
        ("    return None", "    from time import monotonic\n    return None", "monotonic is reached past Env"),
    ],
    rule_imports: [
        ("import os\n", "import os\nimport json\n", "import of json at the top"),
        ("import os\n", "import os\nfrom re import match\n", "import of re at the top"),
    ]
    + [("    return None", "    import attr\n    return None", "import of attr, which is not in the standard")]
    * hasattr(sys, "stdlib_module_names"),
    rule_top_level: [
        ("JSON_WORDS = (", "JSON_CACHE = []\nJSON_WORDS = (", "a list or set at the top level"),
        ("JSON_WORDS = (", "JSON_HOME = open('x')\nJSON_WORDS = (", "open() runs at import"),
        ("JSON_WORDS = (", "for _json_x in ():\n    pass\nJSON_WORDS = (", "a statement that runs at import"),
        ("    return None", "    ERRORS_EXIT_CODES['X'] = 1\n    return None", "ERRORS_EXIT_CODES is changed"),
        ("    return None", "    ERRORS_EXIT_CODES.update({})\n    return None", "is changed by update"),
    ],
    rule_numbers: [
        ("    return None", "    return 300", "the bare number 300"),
        ("    return None", "    return 0.25", "the bare number 0.25"),
        ("    return None", "    return 8 * 1024 * 1024", "the bare number 8388608"),
        ("    return None", "    return 1 << 20", "the bare number 1048576"),
        ("JSON_WORDS = (", "JSON_MORE_BYTES = 9\nJSON_WORDS = (", "JSON_MORE_BYTES is a limit"),
        ("JSON_WORDS = (", "JSON_MORE = 999\nJSON_WORDS = (", "JSON_MORE is a limit"),
    ],
    rule_limits_have_reasons: [("  # levels: deep enough", "", "a limit without its reason")],
    rule_error_codes: [
        ('Error("CONFLICT", "no")', 'Error("CONFLICTS", "no")', "the code CONFLICTS stands in no table"),
        ('    "USAGE": 64,\n', '    "USAGE": 64,\n    "BAD": 1,\n', "ERRORS_EXIT_CODES is not sorted"),
    ],
    rule_old_grammar: [
        ("    return None", "    return (depth := 1)", "an assignment expression"),
        ("text: str, depth: int)", "text: str, /, depth: int)", "positional-only parameters"),
    ],
}


def name_of(rule):
    return rule.__name__[len("rule_") :]


@pytest.fixture(scope="module")
def source():
    with open(PATH, encoding="utf-8") as file:
        return Source(file.read())


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_module_keeps_the_rule(rule, source):
    problems = list(rule(source))
    assert not problems, "%s (%s)\n%s" % (name_of(rule), rule.__doc__, "\n".join(problems[:20]))


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_rule_is_silent_on_a_good_source(rule):
    assert list(rule(Source(GOOD))) == []


@pytest.mark.parametrize(
    "rule, old, new, problem", [pytest.param(rule, *row, id=name_of(rule)) for rule in RULES for row in BROKEN[rule]]
)
def test_the_rule_refuses_a_bad_source(rule, old, new, problem):
    assert GOOD.count(old) >= 1, "the sample no longer holds %r" % old
    problems = list(rule(Source(GOOD.replace(old, new, 1))))
    assert any(problem in text for text in problems), problems


def test_every_code_that_is_raised_is_seen_by_a_test(source):
    """A code of the table that some line raises stands in some test too."""
    raised = {
        node.args[0].value
        for node, _ in source.walk(ast.Call)
        if getattr(node.func, "id", "") == "Error" and node.args and isinstance(node.args[0], ast.Constant)
    }
    texts = ""
    for name in os.listdir(os.path.dirname(os.path.abspath(__file__))):
        if name.startswith("test_") and name != os.path.basename(__file__):
            with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
                texts += file.read()
    assert raised and [code for code in sorted(raised) if code not in texts] == []


def test_import_loads_no_other_module():
    """Start-up is paid by every call: `import knaif` brings in the module itself and nothing that costs."""
    code = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1]); import knaif; "
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code, ROOT], stdout=subprocess.PIPE, timeout=60, check=True)
    assert set(run.stdout.decode().split()) - {"__future__"} == {MODULE}


def test_doctests():
    import knaif

    result = doctest.testmod(knaif)
    assert result.attempted > 0 and result.failed == 0
