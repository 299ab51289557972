// Encoding rows with fixed vocabularies.
#include "fm2/encoder.h"

#include "bindings.h"
#include "fm2/pool.h"
#include "python_rows.h"

using fm2::Encoder;
using EncodedText = fm2::Encoder::EncodedText;

namespace {

void set_vocabulary(Encoder& self, std::size_t field, const Bytes& bytes, const Array<const std::uint64_t, 1>& ends) {
    expect_index("field", field, self.fields());
    self.set_vocabulary(field, as_text(bytes), {ends.data(), ends.size()});
}

std::unique_ptr<EncodedText> encode_text(const Encoder& self, const Bytes& text, const fm2::TextFormat& format, const Positions& positions,
                                         bool last, std::size_t threads) {
    check_text(text, format, positions);
    auto encoded = std::make_unique<EncodedText>();
    nb::gil_scoped_release release;
    self.encode(as_text(text), format, positions, last, threads, *encoded);
    return encoded;
}

OwnedLists encode_frame(const Encoder& self, const fm2::ArrowReader& frame, const Positions& positions, std::size_t threads,
                        const Ids& ids) {
    check_batch(frame, 0, ids.shape(0), positions);
    expect(ids.shape(1) == self.fields(), "encode_frame: expected ids for ", self.fields(), " fields, got ", ids.shape(1));
    std::vector<fm2::ListBuffer> lists;
    {
        nb::gil_scoped_release release;
        self.encode(frame, 0, ids.shape(0), positions, threads, ids.data(), lists);
    }
    return to_numpy(self, std::move(lists));
}

nb::typed<nb::list, nb::str> cells(const EncodedText& self, std::size_t column) {
    expect_index("column", column, self.block.columns());
    const auto cells = self.block.column(column);
    nb::typed<nb::list, nb::str> texts;
    fm2::Batch batch;
    fm2::by_batch(self.block.rows(), [&](std::size_t first, std::size_t count) {
        cells->read(first, count, batch);
        for (const std::string_view cell : std::span(batch.cells).first(count))
            texts.append(nb::steal(PyUnicode_DecodeUTF8(cell.data(), static_cast<Py_ssize_t>(cell.size()), "replace")));
    });
    return texts;
}

// The slots of the hash table of a field: of its values, or of the combinations of a cross.
nb::bytes slots(const Encoder& self, std::size_t field) {
    expect_index("field", field, self.fields());
    std::span<const std::byte> bytes = std::as_bytes(self.vocabulary(field).slots);
    for (const fm2::Cross& cross : self.crosses())
        if (cross.field == field) bytes = std::as_bytes(cross.slots);
    return nb::bytes(bytes.data(), bytes.size());
}

void set_trees(Encoder& self, std::size_t field, const Array<const std::uint32_t, 1>& words, std::size_t size) {
    expect_index("field", field, self.fields());
    expect(self.field(field).trees, "field ", field, " has no trees");
    self.set_trees(field, {words.data(), words.size()}, size);
}

Array<std::uint64_t, 1> tree_slots(const Encoder& self, std::size_t field, const Array<const std::uint32_t, 1>& words) {
    for (const fm2::Trees& trees : self.trees())
        if (trees.field == field) return to_numpy(fm2::Trees::make_slots({words.data(), words.size()}, self.part_sizes(trees)));
    throw std::invalid_argument("the field has no trees");
}

// numbers[field] are those in the column of a field, and lists[field] its lists; None if trees do not read them.
void encode_derived(const Encoder& self, const Ids& ids, const std::vector<std::optional<ConstFloats>>& numbers, const RowLists& lists,
                    std::size_t threads) {
    constexpr std::size_t rows_per_task = 4096;
    expect(ids.shape(1) == self.fields(), "encode_derived: expected ids for ", self.fields(), " fields, got ", ids.shape(1));
    expect(numbers.size() == self.fields(), "encode_derived: expected numbers for ", self.fields(), " fields, got ", numbers.size());
    std::vector<fm2::Lists> of_fields = lists_of(lists, self.fields());
    of_fields.resize(self.fields());
    for (std::size_t field = 0; field < self.fields(); ++field) {
        expect(of_fields[field] || !self.reads_lists(field), "encode_derived: trees read the lists of field ", field);
        expect(numbers[field].has_value() || !self.reads_numbers(field), "encode_derived: trees read the numbers of field ", field);
        if (numbers[field]) expect_size("encode_derived", "numbers of a field", *numbers[field], ids.shape(0));
    }
    nb::gil_scoped_release release;
    fm2::parallel_ranges(ids.shape(0), rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        std::vector<const float*> at;
        for (const auto& of_field : numbers) at.push_back(of_field ? of_field->data() + begin : nullptr);
        self.encode_derived(ids.data() + begin * ids.shape(1), end - begin, at, of_fields);
    });
}

}  // namespace

OwnedLists to_numpy(const Encoder& encoder, std::vector<fm2::ListBuffer> lists) {
    OwnedLists arrays;
    if (!encoder.has_lists()) return arrays;
    lists.resize(encoder.fields());
    arrays.resize(encoder.fields());
    for (std::size_t field = 0; field < encoder.fields(); ++field) {
        if (!encoder.field(field).is_list()) continue;
        fm2::ListBuffer& buffer = lists[field];
        arrays[field].emplace(to_numpy(std::move(buffer.offsets)), to_numpy(std::move(buffer.ids)), to_numpy(std::move(buffer.weights)));
    }
    return arrays;
}

void init_encoder(nb::module_& module) {
    nb::class_<EncodedText>(module, "EncodedText", "The ids of one piece of text.")
        .def_prop_ro("consumed", [](const EncodedText& self) { return self.block.consumed(); })
        .def_prop_ro("lines", [](const EncodedText& self) { return self.block.lines(); })
        .def_prop_ro("bad", [](const EncodedText& self) { return list_bad(self.block.bad()); })
        .def(
            "line",
            [](const EncodedText& self, std::size_t row) {
                expect_index("row", row, self.block.rows());
                return self.block.line(row);
            },
            "row"_a)
        .def("cells", &cells, "column"_a, "Returns the cells of a column as text, while the text that was encoded is unchanged.")
        .def_prop_ro("ids", [](nb::handle_t<EncodedText> self) {
            const auto& text = nb::cast<const EncodedText&>(self);
            const std::size_t rows = text.block.rows();
            return view<const std::int32_t>(self, text.ids, rows, rows ? text.ids.size() / rows : 0);
        });
    nb::class_<Encoder>(module, "Encoder", "Encodes rows as ids with fixed vocabularies.")
        .def(nb::init<std::vector<fm2::Field>, std::vector<std::string>>(), "fields"_a, "missing"_a)
        .def("set_vocabulary", &set_vocabulary, "field"_a, "bytes"_a, "ends"_a)
        .def("slots", &slots, "field"_a, "The slots of the hash table of a field.")
        .def("set_trees", &set_trees, "field"_a, "words"_a.noconvert(), "size"_a, nb::keep_alive<1, 3>(),
             "Sets the trees of a field with `size` features, after all vocabularies.")
        .def("tree_slots", &tree_slots, "field"_a, "words"_a, "The hash tables of the pairs of features that a field's trees read.")
        .def("encode_derived", &encode_derived, "ids"_a.noconvert(), "numbers"_a, "lists"_a, "threads"_a,
             "Writes the ids of crosses and trees into rows that have the ids of the other fields.")
        .def(
            "take_lists", [](const Encoder& self, EncodedText& text) { return to_numpy(self, std::move(text.lists)); }, "text"_a,
            "Moves the lists of encoded text, by field, into arrays.")
        .def("encode_text", &encode_text, "text"_a, "format"_a, "positions"_a, "last"_a, "threads"_a, "Encodes complete rows of text.")
        .def("encode_frame", &encode_frame, "frame"_a, "positions"_a, "threads"_a, "ids"_a,
             "Writes the ids of the current batch, and returns the lists by field.")
        .def(
            "encode_rows",
            [](const Encoder& self, const std::vector<std::string>& columns, const nb::typed<nb::list, nb::object>& rows, const Ids& ids) {
                std::vector<fm2::ListBuffer> lists;
                encode_dicts(self, intern_names(columns), rows, ids, lists);
                return to_numpy(self, std::move(lists));
            },
            "columns"_a, "rows"_a, "ids"_a.noconvert(),
            "Writes the ids of dicts, and returns the lists by field; the fields refer to these columns.");
}
