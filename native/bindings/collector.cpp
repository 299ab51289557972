// Reading a log: values become codes, codes are counted and become ids.
#include "fm2/collector.h"

#include "bindings.h"
#include "fm2/list_table.h"
#include "fm2/pool.h"

using fm2::Block;
using fm2::Collector;

namespace {

void make_collector(Collector* self, std::vector<fm2::Field> fields, std::size_t label, std::optional<std::size_t> time,
                    const std::string& time_format, std::vector<std::string> missing, std::size_t threads,
                    std::optional<std::size_t> impressions, std::optional<std::size_t> weight, std::vector<std::size_t> owners) {
    expect(owners.empty() || owners.size() == fields.size(), "expected owners for ", fields.size(), " fields, got ", owners.size());
    for (const std::size_t owner : owners) expect(owner < fields.size() && owners[owner] == owner, "invalid owner ", owner);
    std::optional<Collector::Time> times;
    if (time) times.emplace(*time, fm2::TimeFormat(time_format));
    new (self) Collector(std::move(fields), {label, impressions, weight}, std::move(times), std::move(missing), threads, std::move(owners));
}

const Block& read_text(Collector& self, const Bytes& text, const fm2::TextFormat& format, const Positions& positions, bool last) {
    check_text(text, format, positions);
    nb::gil_scoped_release release;
    return self.read(as_text(text), format, positions, last);
}

const Block& read_frame(Collector& self, const fm2::ArrowReader& frame, std::size_t first, std::size_t count, const Positions& positions) {
    check_batch(frame, first, count, positions);
    nb::gil_scoped_release release;
    return self.read(frame, first, count, positions);
}

std::tuple<nb::bytes, Array<std::uint64_t, 1>> texts(const fm2::StringIndex& index, const Array<const std::int64_t, 1>& codes) {
    std::string bytes;
    std::vector<std::uint64_t> ends;
    for (std::size_t i = 0; i < codes.size(); ++i) {
        const auto code = static_cast<std::size_t>(codes(i));  // huge if negative
        expect_index("code", code, index.size());
        bytes += index.text(code);
        ends.push_back(bytes.size());
    }
    return {nb::bytes(bytes.data(), bytes.size()), to_numpy(std::move(ends))};
}

Array<std::int32_t, 1> add_values(fm2::StringIndex& self, const Bytes& bytes, const Array<const std::uint64_t, 1>& ends) {
    const fm2::StringIndexView values{{}, {ends.data(), ends.size()}, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    std::vector<std::string_view> views;
    for (std::size_t i = 0; i < ends.size(); ++i) views.push_back(values.text(i));
    std::vector<std::int32_t> numbers(views.size());
    self.add(views, numbers.data());
    return to_numpy(std::move(numbers));
}

template <class T>
std::vector<std::span<T>> as_spans(const std::vector<Array<T, 1>>& arrays) {
    std::vector<std::span<T>> spans;
    for (const auto& array : arrays) spans.emplace_back(array.data(), array.size());
    return spans;
}

template <class Count>
void count_codes(const ConstIds& codes, const RowLists& lists, const Array<const Count, 1>& counted,
                 const std::vector<Array<std::int64_t, 1>>& counts, std::size_t threads) {
    expect(codes.shape(0) == counts.size(), "count_codes: expected counts for ", codes.shape(0), " fields, got ", counts.size());
    expect(codes.shape(1) == counted.size(), "count_codes: expected ", codes.shape(1), " rows, got ", counted.size());
    const std::vector<fm2::Lists> views = lists_of(lists, counts.size());
    nb::gil_scoped_release release;
    fm2::count_codes<Count>(codes.data(), counted.size(), views, {counted.data(), counted.size()}, as_spans(counts), threads);
}

void number_lists(const std::vector<fm2::ListTable*>& tables, const RowLists& lists, const std::vector<Numbers>& ids_of, const Ids& numbers,
                  const Ids& unknown, std::size_t threads) {
    expect(lists.size() == tables.size() && ids_of.size() == tables.size(), "number_lists: expected lists and ids for ", tables.size(),
           " tables");
    const std::vector<fm2::Lists> views = lists_of(lists, tables.size());
    for (std::size_t i = 0; i < tables.size(); ++i)
        expect(tables[i] && views[i].offsets.size() == numbers.shape(1) + 1, "number_lists: expected a list per row");
    expect_shape("number_lists", "numbers", numbers, tables.size(), numbers.shape(1));
    expect_shape("number_lists", "unknown", unknown, tables.size(), numbers.shape(1));
    nb::gil_scoped_release release;
    fm2::parallel_for(tables.size(), threads, [&](std::size_t i) {
        const std::size_t row = i * numbers.shape(1);
        tables[i]->number(views[i], {ids_of[i].data(), ids_of[i].size()}, numbers.data() + row, unknown.data() + row);
    });
}

// The lists of the multi-valued fields of a block, one entry per field.
RowLists block_lists(nb::handle_t<Collector> self, const Block& block) {
    const auto& collector = nb::cast<const Collector&>(self);
    RowLists lists(collector.fields());
    for (std::size_t field = 0; field < collector.fields(); ++field) {
        if (!collector.field(field).list) continue;
        const fm2::ListBuffer& buffer = block.lists[field];
        lists[field].emplace(view<const std::int64_t>(self, buffer.offsets, buffer.offsets.size()),
                             view<const std::int32_t>(self, buffer.ids, buffer.ids.size()),
                             view<const float>(self, buffer.weights, buffer.weights.size()));
    }
    return lists;
}

void codes_to_ids(const ConstIds& codes, const Numbers& order, const std::vector<Numbers>& ids_of, const Ids& ids, std::size_t threads) {
    expect(codes.shape(0) == ids_of.size() && ids.shape(1) == ids_of.size(),
           "codes_to_ids: codes, ids_of and ids must have the same fields");
    expect(ids.shape(0) == order.size(), "codes_to_ids: expected ids for ", order.size(), " rows, got ", ids.shape(0));
    nb::gil_scoped_release release;
    fm2::codes_to_ids(codes.data(), codes.shape(1), {order.data(), order.size()}, as_spans(ids_of), ids.data(), threads);
}

// Views a member of a block as an array.
template <auto Member>
auto view_of(nb::handle_t<Block> self) {
    const auto& values = nb::cast<const Block&>(self).*Member;
    return view<const typename std::decay_t<decltype(values)>::value_type>(self, values, values.size());
}

void init_block(nb::module_& module) {
    nb::class_<Block>(module, "Block", "The rows of one piece of a log.")
        .def_ro("rows", &Block::rows)
        .def_ro("consumed", &Block::consumed)
        .def_ro("lines", &Block::lines)
        .def_prop_ro("codes",
                     [](nb::handle_t<Block> self) {
                         const auto& block = nb::cast<const Block&>(self);
                         return view<const std::int32_t>(self, block.codes, block.rows ? block.codes.size() / block.rows : 0, block.rows);
                     })
        .def_prop_ro("labels", view_of<&Block::labels>)
        .def_prop_ro("clicks", view_of<&Block::clicks>)
        .def_prop_ro("impressions", view_of<&Block::impressions>)
        .def_prop_ro("weights", view_of<&Block::weights>)
        .def_prop_ro("times", view_of<&Block::times>)
        .def_prop_ro(
            "bad", [](const Block& block) { return list_bad(block.bad); }, "(row, field or -1, fault, offending text) of every bad row.");
}

}  // namespace

void init_collector(nb::module_& module) {
    init_block(module);
    nb::class_<Collector>(module, "Collector", "Reads a log and replaces values with codes.")
        .def("__init__", &make_collector, "fields"_a, "label"_a, "time"_a.none(), "time_format"_a, "missing"_a, "threads"_a,
             "impressions"_a = nb::none(), "weight"_a = nb::none(), "owners"_a = std::vector<std::size_t>())
        .def("read_text", &read_text, "text"_a, "format"_a, "positions"_a, "last"_a, nb::rv_policy::reference_internal,
             "Reads complete rows of text; the block is valid until the next read.")
        .def("read_frame", &read_frame, "frame"_a, "first"_a, "count"_a, "positions"_a, nb::rv_policy::reference_internal,
             "Reads rows of the current batch; the block is valid until the next read.")
        .def("lists", &block_lists, "block"_a, "The lists of the block by field, None for single-valued fields.")
        .def(
            "size", [](const Collector& self, std::size_t field) { return self.values(field).size(); }, "field"_a,
            "The number of distinct values of a field so far.")
        .def(
            "values",
            [](const Collector& self, std::size_t field, const Array<const std::int64_t, 1>& codes) {
                return texts(self.values(field), codes);
            },
            "field"_a, "codes"_a, "The concatenated values of these codes, and where each value ends.")
        .def("line", &Collector::line, "row"_a, "The line of the most recent text where a row begins, from 0.")
        .def(
            "row_text",
            [](const Collector& self, std::size_t row) {
                const std::string_view text = self.row_text(row);
                return nb::bytes(text.data(), text.size());
            },
            "row"_a, "The unchanged text of a row of the most recent text.");
    nb::class_<fm2::StringIndex>(module, "StringIndex", "Numbers distinct values in order of appearance.")
        .def(nb::init<>())
        .def("__len__", &fm2::StringIndex::size)
        .def("add", &add_values, "bytes"_a, "ends"_a,
             "Adds concatenated values, of which each ends at one of the ends; returns their numbers.")
        .def("values", &texts, "numbers"_a, "The concatenated values of these numbers, and where each value ends.");
    nb::class_<fm2::ListTable>(module, "ListTable", "Numbers the lists of a field.")
        .def(nb::init<std::size_t>(), "most_lists"_a)
        .def_prop_ro(
            "added",
            [](nb::handle_t<fm2::ListTable> self) {
                const fm2::ListBuffer& added = nb::cast<const fm2::ListTable&>(self).added();
                return std::tuple(view<const std::int64_t>(self, added.offsets, added.offsets.size()),
                                  view<const std::int32_t>(self, added.ids, added.ids.size()),
                                  view<const float>(self, added.weights, added.weights.size()));
            },
            "The new lists of the last call of number_lists.");
    module.def("number_lists", &number_lists, "tables"_a, "lists"_a, "ids_of"_a, "numbers"_a, "unknown"_a, "threads"_a,
               "Writes the number of each list, and how many of its ids are unknown.");
    constexpr const char* count_help = "Adds counted[row] to counts[field][code] for the rows of a block; skips fields without counts.";
    module.def("count_codes", &count_codes<std::uint8_t>, "codes"_a, "lists"_a, "counted"_a.noconvert(), "counts"_a, "threads"_a,
               count_help);
    module.def("count_codes", &count_codes<std::uint32_t>, "codes"_a, "lists"_a, "counted"_a.noconvert(), "counts"_a, "threads"_a,
               count_help);
    module.def("codes_to_ids", &codes_to_ids, "codes"_a, "order"_a, "ids_of"_a, "ids"_a, "threads"_a,
               "Writes the ids of a block's rows, in this order.");
}
