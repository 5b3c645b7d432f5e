"""The words of a text, for the index: the same for memories and searches.

Letters are compared without case, and without the marks that people leave out when they type: the
accents of Latin, Greek and Cyrillic, the vowel points of Hebrew and Arabic. Scripts that are
written without spaces between words, and Hangul, whose words carry their particles, are cut into
overlapping pairs of characters.
"""

# ruff: noqa: RUF001 - many letters look like others

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

_LONGEST = 48  # characters of a word; longer ones are hashes or URLs, and are cut

# Han, kana, Hangul, Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")

_LEFT_OUT = (
    (0x0300, 0x036F),  # accents
    (0x0591, 0x05C7),  # Hebrew points
    (0x064B, 0x065F),  # Arabic vowels
    (0x0670, 0x0670),
    (0x0640, 0x0640),  # the stroke that only makes an Arabic word longer
)


class _Letters(dict[int, str | None]):
    """Replaces each character: it stays, is dropped, or ends a word."""

    def __missing__(self, code: int) -> str | None:
        character: str | None = chr(code)
        if any(first <= code <= last for first, last in _LEFT_OUT):
            character = None
        elif unicodedata.category(chr(code))[0] not in "LNM":
            character = " "
        self[code] = character
        return character


_letters = _Letters()


# Compiled for the first text that is not ASCII: each takes 5 milliseconds.
@functools.cache
def _runs() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED} ]+")


@functools.cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def words(text: str) -> list[str]:
    """Return the words of a text, in their order and with repetitions."""
    if text.isascii():
        return [word[:_LONGEST] for word in _ASCII_WORD.findall(text.lower())]
    folded = unicodedata.normalize("NFKD", text.casefold()).casefold().translate(_letters)
    found: list[str] = []
    for run in _runs().findall(unicodedata.normalize("NFC", folded)):
        if not _unspaced().match(run):
            found.append(run[:_LONGEST])
            continue
        found += [run[at : at + 2] for at in range(len(run) - 1)]
        # Alone, too, so that a single character is found at the end of a run.
        found.append(run[-1])
    return found


def wanted(text: str, *, common: bool) -> list[str]:
    """Return the different words of a text to search for, in their order.

    Words that nearly every sentence has are included only with `common`. A single letter is
    ignored; a single character of a script without spaces is a word.
    """
    found = dict.fromkeys(_without_ends(words(text)))
    if not common:
        for word in _common().intersection(found):
            del found[word]
    return [word for word in found if len(word) > 1 or not word.isascii()]


@functools.lru_cache(maxsize=16384)
def grams(word: str) -> tuple[str, ...]:
    """Return the parts that a word shares with its other forms and compounds.

    These are its overlapping groups of three characters, with `_` before its beginning and after
    its end. A word of one or two characters is its only part; a pair of a script without spaces
    has its characters as parts, too.
    """
    if len(word) < 3:
        return (word,) if len(word) == 1 or not _unspaced().match(word) else (word, *word)
    padded = f"_{word}_"
    return tuple([padded[at : at + 3] for at in range(len(padded) - 2)])


def grams_of(texts: Iterable[str]) -> list[str]:
    """Return the different groups of characters of some texts."""
    found = dict.fromkeys(word for text in texts for word in words(text))
    return list(dict.fromkeys(gram for word in found for gram in grams(word)))


@functools.lru_cache(maxsize=4096)
def needle(gram: str) -> str:
    """Return the string to search for a group of characters in a text whose words are joined and
    surrounded by `_`.

    A word of one or two characters must be a whole word, but a single character of a script without
    spaces may be anywhere.
    """
    if len(gram) > 2 or (len(gram) == 1 and _unspaced().match(gram)):
        return gram
    return f"_{gram}_"


def _without_ends(found: list[str]) -> Iterator[str]:
    # `words` adds the last character of a run; a search for the run needs only its pairs.
    previous = ""
    for word in found:
        if not (previous[1:] == word and _unspaced().match(word)):
            yield word
        previous = word


@functools.cache
def _common() -> frozenset[str]:
    return frozenset(next(_without_ends(words(word))) for word in _COMMON.split())


_COMMON: Final = (
    # English
    " a about after all also am an and any are as at be been but by can could did do does for from"
    " get give had has have he hello her here hey hi him his how i if in into is it its just know"
    " let like ll make may me might more my no not now of on one or our out please re she should so"
    " some such tell than thank thanks that the their them then there these they thing this those"
    " to up us use ve very want was we were what when where which who why will with would yes you"
    " your don didn doesn isn can couldn wasn won"
    # German
    " aber als am an auch auf aus bei bin bis bitte da danke das dass dein deine dem den der des"
    " die dir doch du durch ein eine einem einen einer eines er es habe haben hallo hatte"
    " ich ihr ihre im in ist ja kann kannst konnen mein meine meinem meinen meiner mich mir"
    " mit muss nach nein nicht noch nur oder schon sehr sein seine sich sie sind so uber um und uns"
    " unser von vor wann warum was weil welche wenn wer werden wie wir wird wo zu zum zur"
    # French
    " au aux avec c ce ces cette d dans de des donc du elle en est et il ils j je l la le les"
    " leur lui m ma mais me merci mes moi mon n ne nos notre nous on ont ou par pas plus pour qu"
    " quand que quel quelle quels qui quoi s sa se ses si sont sur t ta te tes toi ton tu un"
    " une va vos votre vous bonjour etait etre fait cest"
    # Spanish, Portuguese, Italian
    " al algo ante como con cual cuando de del desde donde dos el ellos en entre era es esa"
    " ese eso esta estan este esto fue gracias ha hay hola la las le lo los mas mi mis muy ni nos"
    " nuestro o para pero por porque que quien se ser si sin sobre su sus tambien te tiene tu"
    " un una uno unos y ya yo ao aos com da das dele dela do dos e ela ele em essa esse estou"
    " foi isso isto ja mais mas meu minha muito na nao nas no nos obrigado obrigada ou pela pelo"
    " qual quando quem seu sua sao tem um uma voce ad alla anche che chi ci ciao cosa da"
    " dal dalla degli dei della delle di gli grazie ho i il io le lei loro lui ma mio nel"
    " nella non perche piu quale quello questa questo sei sono sta sul tra tuo"
    # Dutch, Swedish, Danish, Norwegian
    " aan als bij dat de deze dit een en er geen haar heb hebben heeft het hij hoe ik in is"
    " je kan maar met mijn naar niet nog om ook op over te tot uit veel voor waar wat we wel"
    " wie wij wil ze zich zij zijn zo att av den det din dig du ett for fran han har hej hon hur"
    " inte jag kan med men mig min nar och om pa sa som tack till var vad vi ar af der ikke jeg mit"
    " og til"
    # Polish, Czech
    " byc byl co czy do gdzie i ja jak jest juz kiedy kto ma mam mnie moj moja na nie o od"
    " po prosze sa sie to tu ty w z za ze aby byt jako je jsem kde kdy mi muj se si"
    " ta te tak tento v ve"
    # Russian, Ukrainian
    " а без был была были быть в вам вас вот все вы где да для до его ее если есть еще же за и из"
    " или им их к как какой когда кто ли меня мне мои мой моя мы на не него нет но ну о он она они"
    " от по привет при с свои себя спасибо так там тебя то только ты у уже что чтобы это этот я"
    " але або від він вона вони дякую є з й мені мій моя що це як який"
    # Turkish
    " ama bana benim bir bu cok da daha de degil gibi icin ile ise ki kim mi mu nasil ne neden"
    " nerede o sen su var ve veya ya yok"
    # Arabic, Hebrew, Persian
    " في من على الى عن ما هل هو هي هذا هذه ذلك انا انت نحن كان لا نعم مع او و ان"
    " של את על אני אתה הוא היא הם זה זאת מה מי איך איפה מתי לא כן עם או כי גם יש אין"
    " از به با را که این ان در و یا من تو ما شما است چه"
    # Hindi
    " का की के को में से है हैं और या यह वह मैं मेरा मेरी मेरे तुम आप क्या कब कहा कौन नही हा पर"
    # Chinese, Japanese, Korean, as pairs
    " 什么 我的 你的 是什 怎么 么时 时候 是的 不是 这个 那个 可以 一个 请问 的是"
    " です ます した ので から まで すか って いる ある する こと もの これ それ あれ どこ いつ"
    " 나는 너는 그것 이것 저것 어디 언제 무엇 있는 있어 없어 니다 습니 입니 합니"
)
"""Words that nearly every sentence has, in languages that are often used here."""
