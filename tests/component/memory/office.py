"""Office documents, as small as their formats allow."""

import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from xml.sax.saxutils import escape

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/drawingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
_DRAW = "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"


def package(files: Mapping[str, str | bytes], media_type: str = "") -> bytes:
    """Return a ZIP archive; with a media type, as OpenDocument begins."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if media_type:
            archive.writestr("mimetype", media_type, zipfile.ZIP_STORED)
        else:
            archive.writestr("[Content_Types].xml", "<Types/>")
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(*paragraphs: str, xml: str = "") -> bytes:
    """Return a document of Word."""
    said = "".join(f"<w:p><w:r><w:t>{escape(one)}</w:t></w:r></w:p>" for one in paragraphs)
    body = f"<w:document xmlns:w='{_WORD}'><w:body>{said}{xml}</w:body></w:document>"
    return package({"word/document.xml": body})


def pptx(*slides: str) -> bytes:
    """Return slides of PowerPoint, the last one first in the archive."""
    files: dict[str, str | bytes] = {"ppt/presentation.xml": "<presentation/>"}
    for number, text in reversed(list(enumerate(slides, 1))):
        files[f"ppt/slides/slide{number}.xml"] = (
            f"<p:sld xmlns:p='p' xmlns:a='{_SLIDE}'><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>"
            "</p:sld>"
        )
    return package(files)


def xlsx(name: str, rows: Sequence[str]) -> bytes:
    """Return a workbook of one sheet; the rows are XML."""
    sheet = "".join(f"<row>{row}</row>" for row in rows)
    return package(
        {
            "xl/workbook.xml": f"<workbook xmlns='{_SHEET}'><sheets><sheet name='{escape(name)}'/>"
            "</sheets></workbook>",
            "xl/sharedStrings.xml": f"<sst xmlns='{_SHEET}'><si><t>tea</t></si>"
            "<si><r><t>black </t></r><r><t>coffee</t></r></si></sst>",
            "xl/worksheets/sheet1.xml": f"<worksheet xmlns='{_SHEET}'><sheetData>{sheet}"
            "</sheetData></worksheet>",
        }
    )


def opendocument(kind: str, content: str) -> bytes:
    """Return an OpenDocument `text`, `spreadsheet` or `presentation`."""
    xml = (
        f"<o:document-content xmlns:o='{_OFFICE}' xmlns:t='{_TEXT}' xmlns:table='{_TABLE}'"
        f" xmlns:draw='{_DRAW}'><o:body>{content}</o:body></o:document-content>"
    )
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    return package({"content.xml": xml}, media_type)
