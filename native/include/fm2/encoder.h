// From the columns of a table to ids: the vocabularies are fixed, and what they do not hold is unknown, id 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/arrow.h"
#include "fm2/fields.h"
#include "fm2/string_index.h"
#include "fm2/text.h"

namespace fm2 {

class Encoder {
public:
    Encoder(std::vector<Field> fields, std::vector<std::string> missing) : fields_(std::move(fields)), reader_(std::move(missing)), tables_(fields_.size()), views_(fields_.size()) {}

    // The vocabulary of a field: text i ends at ends[i] of the bytes and gets the id i + 1.
    void set_vocabulary(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends);
    // The same by a table that lies elsewhere, and stays there.
    void set_vocabulary(std::size_t field, const StringIndexView& table) { views_[field] = table; }
    std::size_t fields() const { return fields_.size(); }

    // ids[row][field] of whole rows of text. A row of a wrong shape is listed as bad, and all its ids are unknown.
    struct EncodedText {
        TextBlock block;
        std::vector<std::int32_t> ids;
    };
    void encode(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last,
                std::size_t threads, EncodedText& out) const;

    // ids[row][field] of the rows [first, first + count) of the table's batch.
    void encode(const ArrowReader& table, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions,
                std::size_t threads, std::int32_t* ids) const;

    // ids[field] of one row, whose cells are texts, a missing one empty; by the columns that the fields name.
    void encode(std::span<const std::string_view> cells, std::int32_t* ids) const;

private:
    void encode(const Columns& columns, std::size_t first, std::size_t count, std::size_t threads, std::int32_t* ids) const;
    void encode_field(std::size_t field, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids) const;

    std::vector<Field> fields_;
    CellReader reader_;
    std::vector<StringIndex> tables_;  // of those vocabularies that do not lie elsewhere
    std::vector<StringIndexView> views_;
};

}  // namespace fm2
