"""JSON texts with RFC 8259's verdict: accepted, rejected, or left to the reader. By kind; all our own."""

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """The expected outcome of parsing a text."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDEFINED = "undefined"


class Case(NamedTuple):
    """A text, and the expected outcome of parsing it."""

    name: str
    text: bytes
    verdict: Verdict


ACCEPTED: dict[str, list[bytes]] = {
    "literal": [
        b"true", b"false", b"null", b" true", b"null\n", b"\tfalse\r", b"[true]", b'{"a":null}', b"[false,true,null]",
    ],
    "number": [
        b"0", b"-0", b"7", b"-7", b"10", b"1234567890", b"0.5", b"-0.5", b"0.0", b"-0.0", b"3.14159", b"100.001",
        b"1.000", b"1e0", b"1E0", b"1e5", b"1E+5", b"1e-5", b"-1E-5", b"0e0", b"0E+0", b"0e-0", b"-0e9", b"2.5e10",
        b"2.5E-10", b"6.02e+23", b"1e05", b"1e00", b"1.0e000", b"123.456e78", b"9007199254740993",
        b"-9223372036854775808", b"18446744073709551616", b"0.0000000000000000000000000000000000000000001",
        b"0." + b"1" * 400, b"[0]", b"[-0]", b"[1.5e3,-2]", b'{"a":-12.5}', b"[ 4 ]", b"[1e1]", b"[0e+1]",
        b"[123456789.987654321]", b"-1", b"[-1]", b"-0.1e-1", b"1.5E+2",
    ],
    "string": [
        b'""', b'"a"', b'"a b"', b'" "', b'"/"', b'"\x7f"', b"\"'\"", b'"{}"', b'"[]"', b'"[1,"', b'"a,b"', b'"a:b"',
        b'"//"', b'"/**/"', b'"# no"', b'"null"', b'"-0"', b'"true"', b'[""]', b'["a","b"]', b'["[","]"]',
        b'"\x7e\x7d\x7c"', b'"' + b"long " * 500 + b'"', b'["},{"]', b'"a\xc2\x80"',
    ],
    "escape": [
        rb'"\""', rb'"\\"', rb'"\/"', rb'"\b"', rb'"\f"', rb'"\n"', rb'"\r"', rb'"\t"', rb'"\u0041"', rb'"\u00e9"',
        rb'"\u00E9"', rb'"\u20ac"', rb'"\u0000"', rb'"\u001f"', rb'"\u007f"', rb'"\u0022"', rb'"\u005c"',
        rb'"\u2028\u2029"', rb'"\uFFFF"', rb'"\ufffe"', rb'"\ufdd0"', rb'"\ud83d\ude00"', rb'"\uD83D\uDE00"',
        rb'"\udbff\udfff"', rb'"\ud800\udc00"', rb'"\\u0041"', rb'"\\\\"', rb'"\\\""', rb'"a\\"', rb'"\\n"',
        rb'["\"","\\"]', rb'"\u000a\u000D"', rb'"x\u0020y"', rb'"\uabcd\uef01"', rb'"\"}"', rb'"\b\f\n\r\t\/\\\""',
        rb'{"\u0061":"\u0062"}', rb'["\u0060\u012a\u12AB"]',
    ],
    "utf-8": [
        "\"é\"".encode(), "\"€\"".encode(), "\"😀\"".encode(), "\"日本語\"".encode(), '"\u2028\u2029"'.encode(),
        '"\u00a0"'.encode(), '"\ufeff"'.encode(), '"\uffff"'.encode(), '"\ufdd0"'.encode(), '"\U0010ffff"'.encode(),
        '"\u0080"'.encode(), '"\u07ff\u0800"'.encode(), '"\U00010000"'.encode(), '{"é":"ß"}'.encode(),
        '["𝄞"]'.encode(), '"e\u0301"'.encode(), '"\u202e"'.encode(), '"\ue000"'.encode(),
    ],
    "array": [
        b"[]", b"[ ]", b"[\n]", b"[1]", b"[1,2]", b"[1 , 2]", b"[[]]", b"[[],[]]", b"[[[1]]]", b"[{}]", b"[{},{}]",
        b"[null,1,\"1\",{},[]]", b" [1]", b"[1] ", b"\r\n[1]\r\n", b"[" + b"1," * 300 + b"1]", b"[" * 60 + b"]" * 60,
        b"[\t1\t,\t2\t]", b"[\n1\n,\n2\n]", b'[ "a" , { "b" : [ ] } ]', b"[[1,2],[3,4]]", b"[null]",
        b"[1,null,null,2]",
    ],
    "object": [
        b"{}", b"{ }", b'{"a":1}', b'{"a":1,"b":2}', b'{"":0}', b'{"":""}', b'{"a":{"a":{"a":{}}}}', b'{"a":[]}',
        b'{"a":[{}]}', b'{"a":1,"a":2}', b'{"a":1,"a":1}', b'{"A":1,"a":2}', b'{ "a" : 1 , "b" : [ 1 , 2 ] }',
        b' {"a":1} ', b'{"a b":1}', b'{"a.b":1}', b'{"\\u0000":1}', b'{"\\"":1}', b'{"a":"b:c"}', b'{"a\\nb":1}',
        b'{"1":1}', b'{"null":null}', b'{"a":"}"}', b'{"}":1}', b'{"a":true,"b":false,"c":null}',
        b'{"a":[1,{"b":[2,{"c":3}]}]}', b'{"\xc3\xa9":1}', b'{"x":"' + b"y" * 5_000 + b'"}', b'{\t"a"\t:\t1\t}',
    ],
    "white space": [
        b" 1 ", b"\t1\t", b"\r1\r", b"\n1\n", b" \t\r\n1", b"1 \t\r\n", b" []", b"[] ", b'"a" ', b"\n\n\n{}\n\n",
        b"[1,\r\n2]", b'{"a":\n1}', b'{\n"a":1\n}',
    ],
}  # fmt: skip

REJECTED: dict[str, list[bytes]] = {
    "literal": [
        b"True", b"FALSE", b"NULL", b"nul", b"tru", b"fals", b"truee", b"nulll", b"undefined", b"nil", b"None",
        b"yes", b"t", b"[tru]", b"[nul]", b"[fals]", b"[True]", b'{"a":nope}', b"[true false]", b"nullnull", b"true1",
        b"[a]", b"a", b"*", b"$", b"@", b"~", b"\\", b"\\u0031",
    ],
    "number": [
        b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"+Infinity", b"Inf", b"+1", b"+0", b"++1", b"--1", b"-", b"+",
        b"- 1", b"-+1", b"01", b"-01", b"00", b"-00", b"007", b"1.", b"-1.", b"0.", b".5", b"-.5", b".", b"1.e5",
        b"1..2", b"1.2.3", b"1.2.", b"1e", b"1e+", b"1E-", b"1e+-1", b"1ee1", b"1e1e1", b"1e1.5", b"e5", b"0x1F",
        b"0X1", b"0b1", b"0o7", b"1_000", b"1 000", b"1'000", b"1f", b"1L", b"1a", b"-a", b"-1a", b"0e", b"0e+",
        b"0.e1", b"0.1.2", b"-2.", b"2.e+3", b"1.8011670033376514H-308", b"\xef\xbc\x91", b"1/2", b"1+2", b"1-1",
        b"(1)", b"[1 2]", b"[01]", b"[1.]", b"[+1]", b"[NaN]", b"[-Infinity]", b'{"a":01}', b"[0x10]", b"[1e]",
        b"[-]", b"1e\x00", b"\xc2\xb9", b"-\xe2\x88\x9e", b"2e 3", b"-foo", b"1.0e", b"[.1]", b"9.3e+",
    ],
    "string": [
        b'"', b'"a', b'a"', b"'a'", b"'", b'"a\nb"', b'"a\rb"', b'"a\tb"', b'"\x00"', b'"\x01"', b'"\x1f"', b'"a""b"',
        b'"a" "b"', b'"a"b', b"a b", b"`a`", b'["a]', b'[a"]', b"['a']", b'["a\nb"]', b'"\x08"', b'["\t"]',
        b'["\x00"]', b'"""', b'"a"\'', b'["a" "b"]', b'"\x1b"', b'"\n"', b'""a', b'["',
    ],
    "escape": [
        rb'"\a"', rb'"\v"', rb'"\0"', rb'"\x41"', rb"""'\''""", rb'"\'"', rb'"\ "', b'"\\\n"', b'"\\\t"', rb'"\u"',
        rb'"\u1"', rb'"\u12"', rb'"\u123"', rb'"\u123g"', rb'"\uGGGG"', rb'"\U0041"', rb'"\u 041"', rb'"\u{41}"',
        rb'"\u+041"', b'"\\', rb'"\"', rb'"\\\"', rb'"a\"', rb'\n', rb'"\e"', rb'"\1"', b'"\\\x00"', rb'"\ud83d\u"',
        rb'"\ud83d\u12"', b'"\\\xc3\xa9"', b'"\\\xf0\x9f\x98\x80"', rb'["\a"]', rb'["\u00"]', rb'{"\q":1}',
        rb'"\uD800\u1x"', rb'"\-"', rb'["\u00A"]', rb'"\u0x41"',
    ],
    "bytes": [
        b"\xff", b"\x80", b"\xc3", b"[\xff]", b"[1\xe5]", b"-\xff", b"1\xff", b"\xe2\x82", b"{\xff:1}", b"\x00",
        b"[\x00]", b"1\x00", b"[1]\x00", b"\x001", b"\xc2\xa0", b"\xe2\x81\xa0[]", b"[\xc2\xa01]", b"\x0c[]",
        b"[\x0c1]", b"\x0b1", b"\xe2\x80\xa81", b"[\xef\xbb\xbf1]", b"\xef\xbb", b"\x1a[]", b"[1]\x1a",
        b"\xe3\x80\x801", b"\xc2\x85[]", b"\x1e{}", b'["\\u\xff"]', b'"\\\xe5"',
    ],
    "array": [
        b"[", b"]", b"[[", b"]]", b"[]]", b"[[]", b"[1", b"1]", b"[1,", b"[,", b"[,]", b"[1,]", b"[,1]", b"[1,,2]",
        b"[1,,]", b"[,,]", b"[1 ,]", b"[1;2]", b"[1:2]", b"[1}", b"[}", b"[{]", b"[{}", b"[1]]", b"[1],", b",[1]",
        b"[][]", b"[] []", b"[1][2]", b"[1] 2", b"[1]x", b'["a":1]', b"[1,2", b"[[1]", b"[[1]]]", b"[1,{}",
        b"[" * 1_000, b"[" * 300 + b"{", b"[\n1,\n2", b"[*]", b"[...]", b"[1 true]", b"<1>", b"[1,]]",
        b'["a",\n1\n,"b"', b"[x,1]", b'[1,"',
    ],
    "object": [
        b"{", b"}", b"{}}", b"{{}}", b"{{", b"{]", b"{a}", b"{a:1}", b"{'a':1}", b"{1:1}", b"{null:1}", b"{[]:1}",
        b"{{}:1}", b"{true:1}", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a"', b'{"a":', b'{"', b'{"a', b'{"a":1,}', b'{,}',
        b'{,"a":1}', b'{"a":1,,"b":2}', b'{"a":1 "b":2}', b'{"a" 1}', b'{"a"=1}', b'{"a"=>1}', b'{"a"::1}',
        b'{"a":1:2}', b'{"a","b"}', b'{"a":1;"b":2}', b'{"a":1]', b'{"a":1}}', b'{"a":[}', b'{"a":[1}', b'{:1}',
        b'{"a":"b', b'{"a":1,"b"}', b'{"a":1,"b":}', b'{"a":1}#', b'{"a":1}//', b'{"a":1}/**/', b'{"a":/**/1}',
        b"{/**/}", b'{"a":1}{', b'{"a":1}{"b":2}', b'{"a":1} {"b":2}', b'{"a":1},', b',{"a":1}', b"{...}", b'{"a":b}',
        b'{"a":"b"c}', b'{"a":\'b\'}', b'{"\\ud83d":1', b'{"a":tru}', b'{ "a" : 1 , }', b'{"x":true,"a":"b"',
        b'{0xff:1}', b'{"a" "b"}', b'{"a":1 true}', b'{"a":[1,]}', b'{"a":{"b":1,}}',
    ],
    "structure": [
        b"", b" ", b"\n", b"\t\r\n ", b",", b":", b";", b"1,", b":1", b"1 2", b"1 true", b'"a",', b"[1],[2]",
        b"{},{}", b"/* c */ 1", b"// c", b"1 // c", b"# c", b"<null>", b"<a/>", b"&", b"%", b"=1", b"a=1", b"1;",
        b"---", b"?", b"!", b"()", b"[]a", b"{}a", b"[1]\\", b'["a"]"', b'"a":1', b"@[]", b'{}"', b"1\t2", b"[\\n]",
        b"{}1", b"-[]", b"!true", b"[](1)", b"\\[]",
    ],
}  # fmt: skip

UNDEFINED: dict[str, list[bytes]] = {
    "number": [
        b"1e400", b"-1e400", b"1e-400", b"123123e100000", b"-123123e100000",
        b"0.4e00669999999999999999999999999999999999999999999969999999006", b"1" * 400, b"-" + b"9" * 5_000,
        b"1e9999999999999999999", b"1e-9999999999999999999", b"0." + b"0" * 1_000 + b"1", b"[1.5e+9999]",
        b"[100000000000000000000]", b"[-237462374673276894279832749832423479823246327846]", b"-1e-9999",
        b"1" + b"0" * 400 + b"e-400",
    ],
    "surrogate": [
        rb'"\ud800"', rb'"\udfff"', rb'"\ud83d"', rb'"\ude00"', rb'"\ude00\ud83d"', rb'"\ud83d\u0041"', rb'"\ud83dx"',
        rb'"\ud83d\ud83d\ude00"', rb'["\uDADA"]', rb'["\uD888\u1234"]', rb'"\ud800\n"', rb'"\uDd1ea"',
        rb'{"\ud800":1}', rb'["\ud800abc"]',
    ],
    "utf-8": [
        b'"\xff"', b'"\x80"', b'"\xc3"', b'"\xe2\x82"', b'"\xf0\x9f\x98"', b'"\xc0\xaf"', b'"\xe0\x80\xaf"',
        b'"\xf0\x80\x80\xaf"', b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"', b'"\xed\xa0\xbd\xed\xb8\x80"',
        b'"\xf4\x90\x80\x80"', b'"\xf8\x88\x80\x80\x80"', b'"\xfc\x83\xbf\xbf\xbf\xbf"', b'["\xe9"]', b'{"\xff":1}',
        b'"\xfe\xff"', b'"a\x81b"', b'["\xc3\xa9\xc3"]', b'"\xc3\xb1\xf1"', b'"\xe6\x97\xa5\xd1\x88\xfa"',
    ],
    "utf-16 and marks": [
        "[1]".encode("utf-16"), "[1]".encode("utf-16-le"), "[1]".encode("utf-16-be"), '{"a":"é"}'.encode("utf-16"),
        '"a"'.encode("utf-16-be"), "[1]".encode("utf-32"), "{}".encode("utf-32-le"), "[]".encode("utf-16-le"),
        b"\xef\xbb\xbf", b"\xef\xbb\xbf[1]", b"\xef\xbb\xbf{}", b"\xef\xbb\xbf1", b"\xef\xbb\xbf\xef\xbb\xbf[]",
        b" \xef\xbb\xbf[]", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf \n", "[😀]".encode("utf-16"),
    ],
    "depth": [
        b"[" * 499 + b"]" * 499, b"[" * 500 + b"]" * 500, b"[" * 501 + b"]" * 501, b"[" * 5_000 + b"]" * 5_000,
        b'{"a":' * 600 + b"1" + b"}" * 600, b'[{"a":' * 400 + b"1" + b"}]" * 400,
    ],
    "lines": [
        b"{}\n{}", b'{"a":1}\n{"b":2}\n', b"{}\r\n{}", b"{}\n[]", b"{}\n1", b"{}\nx", b'{"a":1}\n\n{"a":2',
        b'{"a":\n{}', b"{}\n{}]", b"{\n{}\n", b'{}\n"', b"{} \n {}",
    ],
}  # fmt: skip

CASES = [
    Case(f"{verdict.value} {kind} {number}: {text[:24]!r}", text, verdict)
    for verdict, kinds in ((Verdict.ACCEPTED, ACCEPTED), (Verdict.REJECTED, REJECTED), (Verdict.UNDEFINED, UNDEFINED))
    for kind, texts in kinds.items()
    for number, text in enumerate(texts)
]
