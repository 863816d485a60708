"""Language codes: what a corpus calls a language, from what its user calls it.

Corpora name Swahili sw, swa, swh or swh_Latn. A row has the codes of one language: ISO 639-1 (two
letters), 639-3, and the 639-3 code of the standard variety where the first is a group of languages.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from data_prep.common import Request
from nmt.errors import UserError

_ROWS = """
af afr|am amh|ar ara arb|as asm|ay aym ayr|az aze azj|ba bak|be bel|bg bul|bm bam|bn ben|bo bod
br bre|bs bos|ca cat|cs ces|cy cym|da dan|de deu|dz dzo|ee ewe|el ell|en eng|eo epo|es spa|et est
eu eus|fa fas pes|ff ful fuv|fi fin|fj fij|fo fao|fr fra|fy fry|ga gle|gd gla|gl glg|gn grn gug
gu guj|gv glv|ha hau|he heb|hi hin|hr hrv|ht hat|hu hun|hy hye|ia ina|id ind|ie ile|ig ibo|io ido
is isl|it ita|ja jpn|jv jav|ka kat|kg kon|ki kik|kk kaz|km khm|kn kan|ko kor|ks kas|ku kur kmr
kv kom|kw cor|ky kir|la lat|lb ltz|lg lug|li lim|ln lin|lo lao|lt lit|lv lav lvs|mg mlg plt|mi mri
mk mkd|ml mal|mn mon khk|mr mar|ms msa zsm|mt mlt|my mya|nb nob|ne nep npi|nl nld|nn nno|no nor nob
nv nav|ny nya|oc oci|om orm gaz|or ori ory|os oss|pa pan|pl pol|ps pus pbt|pt por|qu que quy|rn run
ro ron|ru rus|rw kin|sa san|sc srd|sd snd|se sme|sg sag|si sin|sk slk|sl slv|sm smo|sn sna|so som
sq sqi als|sr srp|ss ssw|st sot|su sun|sv swe|sw swa swh|ta tam|te tel|tg tgk|th tha|ti tir|tk tuk
tl tgl|tn tsn|to ton|tr tur|ts tso|tt tat|tw twi|ug uig|uk ukr|ur urd|uz uzb uzn|vi vie|vo vol
wa wln|wo wol|xh xho|yi yid ydd|yo yor|za zha|zh zho cmn|zu zul
"""
_NAMES: dict[str, list[str]] = {}  # code -> all codes of its rows, the code itself first
for _row in _ROWS.replace("\n", "|").split("|"):
    for _code in _row.split():
        _NAMES.setdefault(_code, [_code]).extend(_row.split())


def names(code: str) -> list[str]:
    """The code itself, and other codes of the same language; a script (``_Latn``) is put aside."""
    return [code, *_NAMES.get(code.partition("_")[0], [])]


def known(value: str, among: Iterable[str], what: str, at: str) -> str:
    """``value`` if it is ``among`` the known ones.

    Raises:
        UserError: it is not; says what is near and what there is.
    """
    there = sorted(set(among))
    if value in there:
        return value
    near = get_close_matches(value, there, 1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"unknown {what} {value!r}{hint}", at=at, fix=f"use one of: {' '.join(there)}")


def find(code: str, among: Iterable[str], at: str) -> str:
    """What a corpus calls the language ``code``, of the codes ``among`` that it has.

    Raises:
        UserError: it has no such language, or several (two scripts); says what it has.
    """
    there = set(among)
    for name in names(code):
        if name in there:
            return name
        written = [other for other in there if other.startswith(f"{name}_")]
        if len(written) == 1:
            return written[0]
    return known(code, there, "language", at)


def both(request: Request, among: Iterable[str], at: str) -> tuple[str, str]:
    """What a corpus calls the two languages of a request.

    Raises:
        UserError: it lacks one, or they are one and the same.
    """
    there = set(among)
    src, tgt = find(request.src, there, at), find(request.tgt, there, at)
    if src == tgt:
        raise UserError(
            f"{request.src} and {request.tgt} are the same language", at=at, fix="give two"
        )
    return src, tgt
