import tomllib

from hypothesis import given
from hypothesis import strategies as st

from component.settings.describe import toml
from component.settings.lines import line_of, lines_of_keys

bare = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True)
texts = st.one_of(st.text(max_size=9), st.text(alphabet="\"'\\#=[]a", max_size=9))
scalars = st.one_of(st.integers(), st.booleans(), texts, st.lists(texts, max_size=3))


@given(st.dictionaries(bare, st.dictionaries(bare, scalars, min_size=1, max_size=4), max_size=4))
def test_every_key_of_a_plain_file_is_found_on_its_line(
    tables: dict[str, dict[str, object]],
) -> None:
    written, wanted = [], {}
    for table, keys in tables.items():
        written.append(f"[{table}]")
        wanted[(table,)] = len(written)
        for key, value in keys.items():
            written.append(f"{key} = {toml(value)}")
            wanted[(table, key)] = len(written)
    text = "\n".join(written)
    assert tomllib.loads(text) == tables
    found = lines_of_keys(text)
    assert {path: found[path] for path in wanted} == wanted


@given(st.text(alphabet="[]\"'=.#ab\\ \n\r\u2028"))
def test_no_text_makes_it_raise(text: str) -> None:
    lines_of_keys(text)


def test_arrays_of_tables_dotted_keys_and_long_strings() -> None:
    text = '''
server.host = "x"
[[policy.rules]]
skills = """
fake = 1
"""
[[ policy . rules ]]
"skills" = ["a"]
'''
    lines = lines_of_keys(text)
    assert lines["server", "host"] == 2
    assert lines["policy", "rules", 0, "skills"] == 4
    assert lines["policy", "rules", 1, "skills"] == 8
    assert not any("fake" in path for path in lines)


def test_quotes_within_strings_and_comments_open_nothing() -> None:
    text = """a = "'''" # '''
b = "\\\"" # it's
c = ['', "", ""]
d = 1
"""
    assert lines_of_keys(text) == {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4}


def test_a_key_that_is_not_there_has_the_line_of_what_holds_it() -> None:
    lines = lines_of_keys("[server]\nport = 1\n")
    assert line_of(("server", "host"), lines) == 1
    assert line_of(("agent",), lines) is None
