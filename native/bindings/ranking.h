// Rankers as Python holds them.
#pragma once

#include "bindings.h"
#include "fm2/ranker.h"

// Rows of one side as Python passes them; the arrays must outlive them.
struct SideRows {
    std::vector<fm2::Lists> lists;
    fm2::Rows rows;

    SideRows(const std::int32_t* ids, std::size_t count, std::size_t fields, const RowLists& arrays)
        : lists(lists_of(arrays, fields)), rows{ids, count, fields, lists} {}
    SideRows(const SideRows&) = delete;  // rows refer to lists
    SideRows& operator=(const SideRows&) = delete;
};

// A ranker that checks the shapes of ids.
struct Ranking {
    Ranking(const Compiled& model, const Positions& context)
        : ranker(fm2::Ranker::make(model.shared, context, model.encoder.encoder().crosses())) {}

    SideRows context(const Numbers& ids, const RowLists& lists) const {
        expect(ids.size() == ranker->context().size(), "expected a context of ", ranker->context().size(), " fields, got ", ids.size());
        return {ids.data(), 1, ids.size(), lists};
    }
    SideRows candidates(const ConstIds& ids, const RowLists& lists) const {
        expect(ids.shape(1) == ranker->candidate().size(), "expected candidates of ", ranker->candidate().size(), " fields, got ",
               ids.shape(1));
        return {ids.data(), ids.shape(0), ids.shape(1), lists};
    }

    float shift(std::span<const std::size_t> fields, const std::int32_t* ids) const {
        return ranker->scorer().calibration().shift(fields, ids);
    }

    std::unique_ptr<fm2::Ranker> ranker;
};
