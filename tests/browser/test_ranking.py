"""Ranking: the user chooses the candidate's columns, edits candidates and sees them in the order of the API."""

from __future__ import annotations

import json

from playwright.sync_api import expect
from tests.browser.actions import is_shown, rank_after, ranked_letters, row_of, shown_percent
from tests.browser.conftest import opened
from tests.browser.server import Server


def test_the_order_and_the_probabilities_are_those_of_the_model(page, scorer):
    answer = rank_after(page, lambda: page.get_by_label("ad of candidate C").fill("ad9"))
    rows = [answer["sent"]["context"] | candidate for candidate in answer["sent"]["candidates"]]
    assert list(rows[2]) != [] and rows[2]["ad"] == "ad9"
    expected = scorer.predict(rows)
    order = sorted(range(len(rows)), key=lambda index: -expected[index])
    assert answer["indices"] == order
    assert ranked_letters(page) == ["ABCDEFG"[index] for index in order]
    shown = [shown_percent(cell) for cell in page.locator("#ranking td.number").all()]
    assert all(is_shown(value, expected[index]) for value, index in zip(shown, order, strict=True))
    widths = page.locator("#ranking .bar-piece").evaluate_all("bars => bars.map(b => b.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)


def test_the_context_is_the_row_of_the_form(page):
    answer = rank_after(page, lambda: page.locator("#row").get_by_label("site").fill("site5"))
    assert answer["sent"]["context"]["site"] == "site5"
    assert set(answer["sent"]["context"]) & set(answer["sent"]["candidates"][0]) == set()
    assert set(answer["sent"]["context"]) | set(answer["sent"]["candidates"][0]) == set(row_of(page))


def test_the_columns_of_candidates_can_be_chosen(page):
    answer = rank_after(page, lambda: page.locator("#split").get_by_label("tags").check())
    assert "tags" in answer["sent"]["candidates"][0]
    assert "tags" not in answer["sent"]["context"]
    expect(page.locator("#candidates thead th", has_text="tags")).to_be_visible()
    answer = rank_after(page, lambda: page.locator("#split").get_by_label("size").uncheck())
    assert answer["sent"]["context"]["size"] == row_of(page)["size"]


def test_candidates_are_added_and_removed(page):
    answer = rank_after(page, lambda: page.get_by_role("button", name="Add a candidate").click())
    assert len(answer["indices"]) == 5
    expect(page.get_by_label("ad of candidate E")).to_be_focused()
    answer = rank_after(page, lambda: page.get_by_role("button", name="Remove candidate A").click())
    assert len(answer["indices"]) == 4
    assert sorted(ranked_letters(page)) == ["A", "B", "C", "D"]


def test_the_best_items_of_a_catalog(context, workshop, scorer, tmp_path):
    ads = [{"ad": f"ad{number}", "size": "300x250", "price": number + 0.5} for number in range(60)]
    items = [{"id": f"item {number}", **ad} for number, ad in enumerate(ads)]
    (tmp_path / "ads.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    with (
        Server(workshop / "shop.fm2", "--catalog", f"shop:ads={tmp_path / 'ads.jsonl'}") as server,
        opened(context, server) as page,
    ):
        rank_after(page, lambda: page.get_by_label("Candidates from").select_option("catalog ads, 60 items"))
        answer = rank_after(page, lambda: page.get_by_label("Best items").fill("5"))
        expected = scorer.predict([answer["sent"]["context"] | ad for ad in ads])
        best = sorted(range(60), key=lambda index: -expected[index])[:5]
        shown = page.locator("#ranking tbody th").all_inner_texts()
        assert [text.strip() for text in shown] == [f"item {index}" for index in best]
        expect(page.locator("#candidates")).to_be_hidden()
