from __future__ import annotations

from tests.populations.views import documents
from tests.tools.web.conftest import Client, asked_for, said
from tools.web.pages.pages import view_page


def test_a_seat_without_rows_says_why(client: Client) -> None:
    for is_counted, why in ((True, "yet"), (False, "are not counted")):
        document = documents.openings_of([documents.opening(0, 1, 9, 9)])
        document["summary"][0]["is_counted"] = is_counted
        (block, *_) = view_page(asked_for("openings", openings={**document, "openings": []}))
        assert why in said(block.above)[0]
    # The fixture's tallies have no openings.
    assert "has told its first decisions yet" in client.get("/board/openings.html").text
