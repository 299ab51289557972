// Encodes the columns of a table as ids. The vocabularies are fixed; values they do not have are unknown, id 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/arrow.h"
#include "fm2/cross.h"
#include "fm2/rows.h"
#include "fm2/string_index.h"
#include "fm2/text.h"
#include "fm2/transform.h"
#include "fm2/trees.h"

namespace fm2 {

class Encoder {
public:
    // Throws std::invalid_argument if the parts of a cross are not two or three single-valued fields, or if those of trees are trees.
    Encoder(std::vector<Field> fields, std::vector<std::string> missing);

    // Sets the vocabulary of a field: text i ends at ends[i] of the bytes and has the id i + 1. That of a cross is set after those of its
    // parts.
    void set_vocabulary(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends);
    // The same with a table that someone else owns and keeps.
    void set_vocabulary(std::size_t field, const StringIndexView& table);
    void set_cross(const Cross& cross);
    // Sets the trees of a field that has `size` features, after all vocabularies. Someone else owns the words and the hash tables of pairs,
    // and keeps them; without tables, the encoder makes them.
    void set_trees(std::size_t field, std::span<const std::uint32_t> words, std::size_t size,
                   std::optional<std::span<const std::uint64_t>> slots = {});
    std::vector<std::size_t> part_sizes(const Trees& trees) const;
    std::size_t fields() const { return fields_.size(); }
    const Field& field(std::size_t index) const { return fields_[index]; }
    bool has_lists() const { return has_lists_; }
    std::span<const Cross> crosses() const { return crosses_; }
    std::span<const Trees> trees() const { return trees_; }
    const StringIndexView& vocabulary(std::size_t field) const { return views_[field]; }
    std::array<std::size_t, max_parts> part_sizes(const Cross& cross) const;

    // Writes the ids of all derived fields into rows [count, fields] that have the ids of the other fields. numbers[field] are those in the
    // column of a field, by row, and lists[field] its lists; only those of fields that trees read as numbers or as lists are needed.
    void encode_derived(std::int32_t* ids, std::size_t count, std::span<const float* const> numbers, std::span<const Lists> lists) const;
    // Whether trees read the numbers in the column of a field, or its lists.
    bool reads_numbers(std::size_t field) const { return reads_numbers_[field] != 0; }
    bool reads_lists(std::size_t field) const { return reads_lists_[field] != 0; }

    // All of the following append a list per row to lists[field] of every list field, and write its number as the id.

    // Writes ids[row][field] for complete rows of text. Malformed rows are listed as bad, and all their ids are unknown.
    struct EncodedText {
        TextBlock block;
        std::vector<std::int32_t> ids;
        std::vector<ListBuffer> lists;  // one per field; only those of list fields are used
    };
    void encode(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last, std::size_t threads,
                EncodedText& out) const;

    // Writes ids[row][field] for the rows [first, first + count) of the table's batch.
    void encode(const ArrowReader& table, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions,
                std::size_t threads, std::int32_t* ids, std::vector<ListBuffer>& lists) const;

    // Writes ids[row][field] for rows of any columns, one per column that is read. If `selected` is not empty, only the ids of fields with
    // a nonzero entry in it, and of derived fields, are written; the others' stay as they are, and so do their lists.
    void encode(const Columns& columns, std::size_t first, std::size_t count, std::size_t threads, std::int32_t* ids,
                std::vector<ListBuffer>& lists, std::span<const std::uint8_t> selected = {}) const;

    // Writes ids[field] for one row of cells, one per column; missing cells are empty. Allocates nothing after the first calls of a thread.
    // If values[field] is not null, it has the values of that multi-valued field, and the text of its column is not used.
    void encode(std::span<const std::string_view> cells, std::int32_t* ids, std::vector<ListBuffer>& lists,
                std::span<ListCell* const> values = {}) const;

private:
    // Fields that are not selected have their lists in `common`.
    void encode_block(const Columns& columns, std::size_t first, std::size_t count, std::int32_t* ids, std::vector<ListBuffer>& lists,
                      const std::vector<ListBuffer>& common, std::span<const std::uint8_t> selected) const;
    void encode_field(std::size_t field, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids) const;
    void encode_lists(std::size_t field, const Columns& columns, std::size_t first, std::size_t count, std::int32_t* ids,
                      ListBuffer& lists) const;
    void encode_numbers(std::size_t field, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids,
                        ListBuffer& lists) const;
    // For one row at a time.
    struct CellScratch {
        Batch batch;
        std::vector<std::size_t> unreadable = std::vector<std::size_t>(1);  // has the capacity from the start
    };
    void encode_row(std::span<const std::string_view> cells, std::int32_t* ids, std::vector<ListBuffer>& lists,
                    std::span<ListCell* const> values, CellScratch& scratch) const;
    std::int32_t encode_cell(std::size_t field, std::string_view cell, CellScratch& scratch) const;
    std::int32_t encode_list(std::size_t field, std::span<const std::string_view> cells, ListCell* values, ListBuffer& lists) const;
    void add_list(std::size_t field, const ListCell& cell, ListBuffer& lists) const;
    void add_number(std::size_t field, std::string_view cell, ListBuffer& lists) const;
    void add_crosses();
    void add_trees();
    std::size_t size_of(std::size_t field) const;
    // Calls read(field, numbers) for the fields that trees read as numbers, and lists_of(field) for those that they read as lists, and
    // encodes the trees with these.
    template <class Read, class ListsOf>
    void read_trees(std::int32_t* ids, std::size_t count, const Read& read, const ListsOf& lists_of) const;
    void encode_trees(std::int32_t* ids, std::size_t count, std::span<const float* const> numbers, std::span<const Lists> lists) const;
    void make_cross(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends);
    std::int32_t part_id(std::size_t field, std::string_view value) const;
    Cross& cross_of(std::size_t field);

    std::vector<Field> fields_;
    bool has_lists_;
    CellReader reader_;
    std::vector<StringIndex> tables_;  // of the vocabularies that the encoder owns
    std::vector<StringIndexView> views_;
    std::vector<std::vector<std::int32_t>> number_ids_;  // by field and code, of numbers with weighted features
    std::vector<Cross> crosses_;  // ordered by their last part
    std::vector<Trees> trees_;
    std::vector<std::uint8_t> reads_numbers_, reads_lists_;  // by field
    std::vector<std::vector<std::uint64_t>> tree_tables_;     // by field, of the pairs of trees that the encoder owns
    std::vector<std::vector<std::uint64_t>> cross_tables_;    // by field, of the crosses' vocabularies that the encoder owns
    std::vector<std::vector<std::uint64_t>> feature_hashes_;  // by field, of the parts of hashed crosses
};

}  // namespace fm2
