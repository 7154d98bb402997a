"""FORMAT: what each format takes and refuses, and ECMA-262 patterns in Python's re."""
import time

import pytest

import knaif as nk

#: format -> (texts it takes, texts it refuses)
CASES = {
    "date": (
        ["2024-02-29", "2000-02-29", "0000-01-01", "9999-12-31", "1970-04-30"],
        ["", "2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-10", "2024-01-00", "24-01-01", "2024-1-1",
         "2024-01-01 ", "2024-01-01\n", "20240101", "+024-01-01", "2024-01-0\u0661", "2024/01/01", "2024-01-01T00:00:00Z"],
    ),
    "time": (
        ["00:00:00Z", "23:59:59z", "12:00:00.5+05:30", "12:00:00-23:59", "23:59:60Z", "00:29:60+00:30", "15:59:60-08:00"],
        ["", "Z", "12:00Z", "12:00:00", "24:00:00Z", "12:60:00Z", "12:00:61Z", "12:00:60Z", "23:59:60+00:01", "12:00:00.Z",
         "12:00:00,5Z", "12:00:00+5:30", "12:00:00+24:00", "12:00:00+00:60", "12:00:00ZZ", "12:00:00.1.2Z", "1\u0662:00:00Z",
         "12:00:00.5", "12:00:00 +01:00", "12:00:00.+01:00", "12:00:00\n"],
    ),
    "date-time": (
        ["2024-02-29T12:00:00Z", "2024-02-29t12:00:00.123456789z", "1990-12-31T23:59:60Z"],
        ["2024-02-29", "2024-02-29 12:00:00Z", "2024-02-29T12:00:00", "2023-02-29T12:00:00Z", "2024-02-29T", "T12:00:00Z",
         "2024-02-29T12:00:00Z\n", "2024-02-29TT12:00:00Z"],
    ),
    "iso-date-time": (
        ["2024-02-29T12:00:00Z", "2024-02-29T12:00", "2024-02-29t12:00:59.5", "2024-02-29T12:00+02:00", "2024-02-29T12:00:00.25-01:30"],
        ["", "x", "2024-02-29", "2024-02-29T", "2023-02-29T12:00", "2024-02-29 12:00", "2024-02-29T12", "2024-02-29T12:00:00+0200"],
    ),
    "iso-time": (
        ["07:30", "07:30z", "07:30:15", "07:30:15.123456789", "07:30+05:30", "23:59:60", "07:30:15.5-23:59"],
        ["", "x", "07", "7:30", "07:3", "24:00", "07:60", "07:30:", "07:30.5", "07:30:15.", "07:30+5", "07:30+24:00", "07:30 ", "07:30\n",
         "07:30:15ZZ", "0\u0667:30", "+01:00", "07:30:15Z+01:00", "073015", "07:30.5Z", "07:30-08:0", "Z"],
    ),
    "decimal": (
        ["0", "-0", "+1.50", "12", "0.1", "1e5", "1E+9999", "-1.25E-0007", "0E-10"],
        ["", "+", "-", ".5", "5.", "01", "1e", "1e+", "1e10000", "1E-10000", "NaN", "Infinity", "1 ", "1_0", "\u0661", "1.2.3", "1e1e1",
         "--1", "1,5", "0x1", "1e1.0"],
    ),
    "duration": (
        ["P1Y2M3DT4H5M6S", "P2W", "PT1S", "P0D", "P1YT1H", "PT1H30M", "P10Y"],
        ["", "P", "PT", "P1", "1D", "P1DT", "P1S", "PT1D", "P1W2D", "P1D1Y", "P1Y2D", "PT1H1S", "P-1D", "P1.5D", "P1D ", "p1d",
         "PT1H1H", "P1WT1H", "P\u0661D"],
    ),
    "uuid": (
        ["123e4567-e89b-12d3-a456-426614174000", "FFFFFFFF-ffff-FFFF-ffff-FFFFFFFFFFFF"],
        ["", "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-42661417400g",
         "{123e4567-e89b-12d3-a456-426614174000}", "123e4567-e89b-12d3-a456-426614174000\n"],
    ),
    "ipv4": (
        ["0.0.0.0", "255.255.255.255", "127.0.0.1"],
        ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "01.2.3.4", "1.2.3.4 ", "1..2.3", "0x7f.0.0.1", "1.2.3.\u0664", "1.2.3.-4",
         "1.2.3.4\n", "1.2.3.0004", "2130706433"],
    ),
    "ipv6": (
        ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "FE80::a"],
        ["", ":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "::g", "::1%eth0", "::1/64", "1.2.3.4::",
         "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", "::1.2.3.256", ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:", " ::1", "1:2:3:4:5:6:7:8::"],
    ),
    "hostname": (
        ["localhost", "a", "1host", "a-b.example", "r3---sn.example", "xn--4gbwdl.xn--wgbh1c", "a" * 63 + ".com"],
        ["", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "a b", "a" * 64, "é.example", "xn--", "xn--X", "xn--a-", "xn--0000000000",
         ".".join(["a" * 49] * 6), "a\n", "1.2.3.4/8", "xn--zz999999999"],
    ),
    "idn-hostname": (
        ["example", "éxample.test", "実例。テスト", "a．b", "straße", "l\xb7l", "\u0915\u094d\u200d\u0937", "\u30fb\u30a1",
         "\u05d0\u05f3\u05d1", "\u0628\u064a\u200c\u0628\u064a", "\u06f00", "\u0628\u0660"],
        ["", "。", "a。。b", "É", "ab--cd", "éa--b", "-é", "é-", "é_", "\u0301a", "a\xb7l", "\u200d\u0937", "\u0915\u200d\u0937", "\u0627\u200c\u0628",
         "\u0628\u0660\u06f0", "\u0640\u07fa", "a\u05d0", "\u05d0a", "1\u05d0", "\u05d01\u0660", "é" * 64, "\u302eé", "e\u0301a", "\ufe0fa", "\ud800"],
    ),
    "email": (
        ["a@b", "joe.bloggs@example.com", '"joe bloggs"@example.com', '"a@b"@c', '"a\\"b"@c', "a+b/c@d", "a@[127.0.0.1]",
         "a@[IPv6:::1]", '""@b', "x" * 64 + "@b"],
        ["", "a", "@", "@b", "a@", "a@b@c", ".a@b", "a.@b", "a..b@c", "a b@c", "a@b_c", "a@[127.0.0.300]", "a@[::1]", '"a"b"@c', '"a\\"@c',
         "x" * 65 + "@b", "é@b", "a@é", "a@b\n", '"\n"@b', "a@-b"],
    ),
    "idn-email": (
        ["é@é.test", "실례@실례.테스트", "a@b", '"é è"@b'],
        ["é", "é@", "@é", "a..é@b", "\ud800@b", "é@b..c", "\x80@b"],
    ),
    "uri": (
        ["http://example.com/a?b#c", "urn:x:y", "mailto:a@b", "a:", "http://[::1]:80/", "http://[v1.a:b]/", "http://u:p@h:1/%20",
         "file:///a", "a+b-c.1:x", "http://", "x:?#", "http://h:"],
        ["", "a", "/a", "//h/a", "http://a b", "http://h/<", "http://h/%", "http://h/%2", "http://h/%zz", "1a:b", ":a", "a,b:c",
         "http://h:80a/", "http://[::1/", "http://[::1]x/", "http://[g]/", "http://[v.a]/", "http://a[b]/", "http://é/", "http://h/\\",
         "http://h/a#b#c", "http://h/[", "http://<@h/", "http://1::2/", "http://h\n", "\u2028:a"],
    ),
    "uri-reference": (
        ["", "a", "/a", "//h/a", "?q", "#f", "../a:b", "a/b:c", "http://h", ".", "a%20b"],
        ["a b", "\\", "a,b:c", "#\\", "%", "é", "//h:x", "a#b#c", '"', "{a}", "1:2"],
    ),
    "iri": (
        ["http://é.test/ü?ß#ñ", "http://example.com/\U0001f600", "http://h/?\ue000"],
        ["é", "/é", "http://h/\ue000", "http://h/\x80", "http://h/\ud800", "http://h/\ufffe", "http://h/#\ue000", "http://é h/"],
    ),
    "iri-reference": (["", "é", "#é", "/a/é", "?\ue000"], ["é é", "\\é", "#\ue000", "\u2028 "]),
    "uri-template": (
        ["", "a", "{a}", "{+a,b}", "{#a:3}", "{/a*}", "{?a.b,c}", "http://h/{a}/b{;c}", "{%41}", "é{a}", "it's", "{a_1}", "a%20b"],
        ["{", "}", "{}", "{a", "a}", "{a}}", "{{a}}", "{=a}", "{a,}", "{a b}", "{a:0}", "{a:10000}", "{a:}", "{a:x}", "{.}", "{a..b}",
         "{a**}", "{a-b}", "a b", "<", "%", "\\", "^", "{%4}", "{é}"],
    ),
    "json-pointer": (["", "/", "/a", "/a~0b~1c", "//", "/é/ /\x00"], ["a", "#/a", "/~", "/~2", "/~~0", "/a~", "a/b", " "]),
    "relative-json-pointer": (
        ["0", "1", "0#", "10/a", "1/", "0+1", "2-10/a", "0/~0", "1+1#"],
        ["", "/a", "#", "00", "01/a", "-1", "+1", "1##", "0a", "0+0", "0+", "0-01", "1/~", "\u0661", " 0"],
    ),
    "regex": (["", "a", "^[a-z]+$", "(?<n>a)\\k<n>", "\\p{L}", "a{2,3}?"], ["(", "[", "\\", "a**", "\\Z", "(?P<n>a)", "(?i)a", "\\a"]),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_formats(name):
    valid, invalid = CASES[name]
    assert [text for text in valid if nk._format_check(name, text) is not True] == []
    assert [text for text in invalid if nk._format_check(name, text) is not False] == []


def test_every_format_has_cases_and_words():
    assert sorted(nk.FORMAT_CHECKS) == sorted(CASES)
    for name in nk.FORMAT_CHECKS:
        words, check = nk._format_find(name)
        assert words.split()[0] in ("a", "an") and callable(check)


def test_an_unknown_format_is_not_judged():
    assert nk._format_check("colour", "x") is None
    assert nk._format_find("colour") is None


def test_host_names_become_ascii():
    assert nk._format_host_ascii("Bücher.example") is None  # upper case is for the caller to map (RFC 5895)
    assert nk._format_host_ascii("bücher.example") == "xn--bcher-kva.example"
    assert nk._format_host_ascii("faß。de") == "xn--fa-hia.de"
    assert nk._format_host_ascii("a..b") is None


#: pattern -> (texts it finds, texts it does not find)
PATTERNS = [
    ("", ["", "a"], []),
    ("^abc$", ["abc"], ["abc\n", "abcd", "\nabc"]),
    ("a|^$", ["", "ba"], ["\n"]),
    (r"^\d$", ["7"], ["\u0667", "x"]),
    (r"^\w+$", ["aZ_9"], ["é", "a-b"]),
    (r"^\W$", ["é", "-"], ["a"]),
    (r"^\s$", [" ", "\t", "\n", "\r", "\x0b", "\x0c", "\xa0", "\ufeff", "\u2028", "\u3000"], ["\x1c", "\x85", "\u200b", "a"]),
    (r"^\S$", ["\x1c", "\x85", "\u200b", "\U0001f600"], [" ", "\ufeff", "\u2029"]),
    (r"^[\s]$", ["\u2003"], ["x"]),
    (r"^[^\S]$", ["\u2003"], ["x"]),
    (r"^[\Sx]$", ["y"], [" "]),
    (r"^.$", ["a", "\x85", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029"]),
    (r"\bé", ["aé"], ["é", "éé"]),
    (r"^\B$", [""], ["a"]),
    (r"^\t\n\v\f\r\0$", ["\t\n\x0b\x0c\r\0"], []),
    (r"^\cC\cc$", ["\x03\x03"], ["\\cC"]),
    (r"^\x41\u0042\u{43}\u{1F600}$", ["ABC\U0001f600"], []),
    (r"^\ud83d\ude00$", ["\U0001f600"], ["\ud83d"]),
    (r"^[\ud83d\ude00]$", ["\U0001f600"], ["\ud83d"]),
    (r"^\/\-\.\_\#\ \"$", ['/-._# "'], []),
    (r"^[\]\-\\\b]+$", ["]-\\\x08"], ["b"]),
    (r"^[a-c-e]+$", ["abc-e"], ["d"]),
    (r"^[\w-]+$", ["a-b"], ["+"]),
    (r"^[+--]+$", ["+,-"], ["."]),
    (r"^[[&&~~||-]+$", ["[&~|-"], ["a"]),
    (r"^[^]$", ["\n", "a"], [""]),
    (r"[]", [], ["", "a"]),
    (r"^a{2}$", ["aa"], ["a"]),
    (r"^a{1,}b{0,1}$", ["aa", "ab"], ["b"]),
    (r"^a{,3}$", ["a{,3}"], ["aaa"]),
    (r"^a{x}]}$", ["a{x}]}"], []),
    (r"^(?:a+?)(?=b)b$", ["aab"], ["aa"]),
    (r"(?<=\$)\d+(?!\.)", ["$5"], ["5"]),
    (r"(?<!a)b", ["cb"], ["ab"]),
    (r"^(?<year>\d+)-\k<year>$", ["12-12"], ["12-13"]),
    (r"^(?<$a>x)\1$", ["xx"], ["x"]),
    (r"^(a)?\1b$", ["b", "aab"], ["ab"]),
    (r"^\1(a)$", ["a"], ["aa"]),
    (r"^(a\1)$", ["a"], ["aa"]),
    (r"^\k<n>(?<n>a)$", ["a"], []),
    (r"^(a)\1{2}$", ["aaa"], ["aa"]),
    (r"^\p{L}+$", ["aé字"], ["1", "²"]),
    (r"^\p{Lu}\p{Lowercase_Letter}$", ["Éa"], ["éa"]),
    (r"^\p{General_Category=Nd}\p{gc=digit}$", ["1\u0661"], ["²1"]),
    (r"^\P{L}$", ["1"], ["a"]),
    (r"^[\p{Sc}\d]+$", ["€5"], ["a"]),
    (r"^[^\p{Z}]$", ["a"], ["\u2003"]),
    (r"^\p{LC}$", ["a", "A", "\u01c5"], ["字"]),
    (r"^\p{Cn}$", ["\U000e0fff", "\uffff"], ["a"]),
    (r"^\p{Co}\p{Co}$", ["\ue000\U0010fffd"], []),
    (r"^\p{Cs}$", ["\ud800"], ["\ue000"]),
]


@pytest.mark.parametrize("source, found, missed", PATTERNS, ids=[case[0] for case in PATTERNS])
def test_patterns(source, found, missed):
    matcher = nk._format_pattern(source)
    assert [text for text in found if not matcher.search(text)] == []
    assert [text for text in missed if matcher.search(text)] == []


BAD_PATTERNS = [
    ("(", "there is a ( without its )"),
    ("a)", "there is a ) without its ("),
    ("[a", "there is a [ without its ]"),
    ("[a\\", "\\ is no escape of ECMA-262"),
    ("*", "there is nothing to repeat before *"),
    ("a**", "there is nothing to repeat before *"),
    ("a++", "there is nothing to repeat before +"),
    ("a{2}+", "there is nothing to repeat before +"),
    ("a???", "there is nothing to repeat before ?"),
    ("(?<=a)*", "there is nothing to repeat before *"),
    ("^{2}", "there is nothing to repeat before {2}"),
    ("a{2,1}", "min repeat greater than max repeat"),
    ("a{99999999999}", "the repetition number is too large"),
    ("[b-a]", "the range b-a is out of order"),
    ("\\Z", "\\Z is no escape of ECMA-262"),
    ("\\a", "\\a is no escape of ECMA-262"),
    ("\\", "\\ is no escape of ECMA-262"),
    ("\\c1", "\\c is no escape of ECMA-262"),
    ("\\01", "\\0 is no escape of ECMA-262"),
    ("\\x4", "\\x does not name a character"),
    ("\\u{110000}", "\\u does not name a character"),
    ("\\u{}", "\\u does not name a character"),
    ("\\u{41", "\\u does not name a character"),
    ("\\2(a)", "the pattern has no group 2"),
    ("(?<=a)\\1", "the pattern has no group 1"),
    ("\\k<n>", "\\k names no group of the pattern"),
    ("(?<n>a)(?<n>b)", "the group name n stands twice"),
    ("(?<1>a)", "(?<1 does not open a group"),
    ("(?P<n>a)", "(?P< does not open a group"),
    ("(?>a)", "(?>a does not open a group"),
    ("(?i)a", "(?i) does not open a group"),
    ("(?#a)", "(?#a does not open a group"),
    ("(?<=a+)b", "look-behind requires fixed-width pattern"),
    ("\\p{Script=Greek}", "\\p{Script=Greek} is no general category"),
    ("\\p{Klingon}", "\\p{Klingon} is no general category"),
    ("\\pL", "\\p takes a property in braces"),
    ("(" * 5000 + ")" * 5000, "it is nested too deeply"),
    ("a" * 10001, "it is longer than 10000 characters"),
]


@pytest.mark.parametrize("source, message", BAD_PATTERNS, ids=[case[0][:20] for case in BAD_PATTERNS])
def test_what_is_no_pattern(source, message):
    with pytest.raises(ValueError) as caught:
        nk._format_pattern(source)
    assert str(caught.value) == message


# Fuzzing


def test_any_text_is_judged_by_every_format(rng):
    characters = "0123456789-:.TZPDYMHSW+/#?@[]{}%~\"\\ axX_,*=\u0660\u06f0\xb7\u200c\u200d\u0628\u094d\ud800\u302e\u3002\u30fb\xdf"
    made = rng
    for _ in range(1500):
        text = "".join(made.choice(characters) for _ in range(made.randrange(14)))
        for name in nk.FORMAT_CHECKS:
            assert nk._format_check(name, text) in (True, False)


def test_any_text_is_a_pattern_or_a_value_error(rng):
    atoms = list("ab.^$|()[]{}*+?\\-,:=!<>") + (
        "\\d \\b \\B \\cA \\x41 \\u0041 \\u{41} \\1 \\k<n> (?<n> (?: (?= (?! (?<= (?<! (?P<n> {2} {1,} [^ [] [^] \\Z -- && [[ ++".split()
    )
    made = rng
    good = 0
    for _ in range(4000):
        source = "".join(made.choice(atoms) for _ in range(made.randrange(1, 9)))
        try:
            matcher = nk._format_pattern(source)
        except ValueError as fault:
            assert str(fault) and "\n" not in str(fault)
            continue
        good += 1
        matcher.search("ab\n")
    assert good > 500


def test_long_texts_take_linear_time():
    began = time.perf_counter()
    for text in ("a" * 200000, "1" * 200000, "é" * 200000, "a." * 100000, "%41" * 60000, "{a}" * 60000, "/~0" * 60000, ":" * 200000):
        for name in nk.FORMAT_CHECKS:
            nk._format_check(name, text)
    assert time.perf_counter() - began < 20  # a quadratic step would take minutes


def test_whether_text_is_a_pattern_is_told_in_linear_time():
    for atom in ("\\S", ".", "\\p{L}", "[^\\P{Lu}]", "[\\u0100-\\uffff]", "(a)", "((a+)+)", "(?<=a)"):
        began = time.perf_counter()
        assert nk._format_check("regex", atom * (10000 // len(atom)))
        assert time.perf_counter() - began < 2, atom  # a table for each class would take 3 to 50 s
    assert not nk._format_check("regex", "a" * 200000)


@pytest.mark.parametrize("source", ["^(a+)+$", "^(a*)*$", "^(?:a+)*$", "^([a-b]*)+$", "^(?<n>a+)+?$", "^(\\w+)*$"])
def test_repeated_repeats_take_linear_time(source):
    began = time.perf_counter()
    search = nk._format_pattern(source).search
    assert not search("a" * 40 + "!") and search("a" * 40) and bool(search("")) is ("*" in source)
    assert time.perf_counter() - began < 2  # hours


def test_repeated_repeats_mean_the_same(rng):
    import re

    made = rng
    for _ in range(3000):
        source = "".join(made.choice(["(a+)+", "(a*)+", "(?:b+)*", "(a+b)*", "(?=a+)", "(?!b*)", "^", "$", "a", "|", "((b+)+)*", "(b+)+?", "(()*)*"]) for _ in range(4))
        for text in ("", "a", "ab", "bba", "baab"):
            assert bool(nk._format_pattern(source).search(text)) is bool(re.search(source.replace("$", "\\Z"), text)), (source, text)
    search = nk._format_pattern("^(a+)+b\\1$").search
    assert search("aaba") and search("aabaa") and nk._format_pattern("^(aa|a+)+b$").search("aab")


# Regressions
