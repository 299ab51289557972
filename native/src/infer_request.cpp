#include "fm2/infer_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace fm2 {
namespace {

// Adds the elements of a tensor to a column: one per row, or a list per row.
class ColumnSink {
public:
    ColumnSink(const Tensor& tensor, CellTable& table) : table_(table), width_(tensor.width()) {
        for (std::size_t row = 0; !width_ && row < tensor.rows(); ++row) table_.cells.push_back({{}, table_.finish_list(false)});
    }

    // Lists of different lengths are padded with empty texts.
    void add(std::string_view text) {
        if (width_ == 1) return table_.cells.push_back({text, Cell::no_list});
        if (!text.empty()) table_.items.push_back(text);
        if (++filled_ < width_) return;
        filled_ = 0;
        table_.cells.push_back({{}, table_.finish_list(false)});
    }

private:
    CellTable& table_;
    std::size_t width_, filled_ = 0;
};

class InferReader {
public:
    InferReader(std::string_view header, std::string_view binary, const RequestColumns& columns, const Scorer& scorer,
                const RequestLimits& limits, CellTable& table, InferRequest& request)
        : columns_(columns),
          scorer_(scorer),
          limits_(limits),
          table_(table),
          request_(request),
          binary_(binary),
          json_(header, table.arena),
          values_(json_, columns, limits, table) {}

    void read() {
        bool has_inputs = false, has_outputs = false, has_parameters = false;
        json_.object([&](std::string_view key) {
            if (key == "inputs") once(has_inputs, key), inputs();
            else if (key == "outputs") once(has_outputs, key), outputs();
            else if (key == "parameters") once(has_parameters, key), parameters();
            else if (key == "id") id();
            else json_.skip();
        });
        json_.finish();
        if (!has_inputs) refuse(reason::request, "the request has no 'inputs'");
        if (used_ != binary_.size())
            refuse(reason::tensor, "the JSON is followed by ", binary_.size(), " bytes of binary data, but the inputs have ", used_,
                   " (the sum of binary_data_size)");
        check_complete();
        if (!has_outputs) request_.outputs.push_back({false, {}});
        for (InferOutput& output : request_.outputs)
            if (!output.binary) output.binary = binary_output_;
    }

private:
    void once(bool& seen, std::string_view key) {
        if (seen) refuse(reason::request, "'", key, "' occurs twice");
        seen = true;
    }

    void id() {
        if (json_.peek() != '"') json_.expected("a string as 'id'");
        request_.id = json_.raw();
    }

    void parameters() {
        json_.object([&](std::string_view key) {
            if (key == "binary_data_output") binary_output_ = json_.boolean();
            else json_.skip();
        });
    }

    void outputs() {
        json_.array([&](std::size_t index) {
            try {
                output();
            } catch (RequestError& error) {
                error.prefix("outputs[" + std::to_string(index) + "]");
                throw;
            }
        });
    }

    void output() {
        std::optional<std::string_view> name;
        std::optional<bool> binary;
        json_.object([&](std::string_view key) {
            if (key == "name") name = json_.string();
            else if (key == "parameters") binary = output_parameters();
            else json_.skip();
        });
        if (!name) refuse(reason::request, "the output has no 'name'");
        static const std::vector<std::string> names{"probabilities", "logits"};
        if (std::ranges::find(names, *name) == names.end())
            refuse(reason::tensor, "unknown output ", quoted(*name), "; ", suggest(*name, names));
        const bool logits = *name == "logits";
        if (std::ranges::find(request_.outputs, logits, &InferOutput::logits) != request_.outputs.end())
            refuse(reason::tensor, "output ", quoted(*name), " occurs twice");
        request_.outputs.push_back({logits, binary});
    }

    std::optional<bool> output_parameters() {
        std::optional<bool> binary;
        json_.object([&](std::string_view key) {
            if (key == "binary_data") binary = json_.boolean();
            else if (key.starts_with("shared_memory")) refuse(reason::request, "shared memory is not supported");
            else if (key == "classification") refuse(reason::request, "classification is not supported");
            else json_.skip();
        });
        return binary;
    }

    void inputs() {
        json_.array([&](std::size_t index) {
            Tensor tensor;
            try {
                input(tensor, index);
            } catch (RequestError& error) {
                const std::string name = tensor.name.data() ? " " + quoted(tensor.name) : "s[" + std::to_string(index) + "]";
                error.prefix("input" + name);
                throw;
            }
        });
    }

    void input(Tensor& tensor, std::size_t index) {
        bool has_name = false, has_shape = false, has_datatype = false, has_parameters = false, has_data = false, is_read = false;
        const char* data = nullptr;  // JSON that is read after the rest
        std::optional<std::size_t> binary_size;
        json_.object([&](std::string_view key) {
            if (key == "name") {
                once(has_name, key);
                tensor.name = json_.string();
            } else if (key == "shape") {
                once(has_shape, key);
                shape(tensor);
            } else if (key == "datatype") {
                once(has_datatype, key);
                tensor.datatype = &find_datatype(json_.string());
            } else if (key == "parameters") {
                once(has_parameters, key);
                binary_size = input_parameters();
            } else if (key == "data") {
                once(has_data, key);
                json_.peek();
                data = json_.position();
                is_read = has_name && has_shape && has_datatype;
                if (is_read) read_tensor(tensor, index, {});
                else json_.skip();
            } else {
                json_.skip();
            }
        });
        if (!has_name) refuse(reason::request, "the input has no 'name'");
        if (!has_shape) refuse(reason::tensor, "the input has no 'shape'");
        if (!has_datatype) refuse(reason::tensor, "the input has no 'datatype'");
        if (has_data && binary_size) refuse(reason::tensor, "the input has both 'data' and 'binary_data_size'");
        if (!has_data && !binary_size) refuse(reason::tensor, "the input has neither 'data' nor the parameter 'binary_data_size'");
        if (binary_size) return read_tensor(tensor, index, take_binary(*binary_size));
        if (is_read) return;
        const char* const next = json_.position();
        json_.seek(data);
        read_tensor(tensor, index, {});
        json_.seek(next);
    }

    std::optional<std::size_t> input_parameters() {
        std::optional<std::size_t> size;
        json_.object([&](std::string_view key) {
            if (key == "binary_data_size") size = json_.size();
            else if (key.starts_with("shared_memory")) refuse(reason::request, "shared memory is not supported");
            else json_.skip();
        });
        return size;
    }

    void shape(Tensor& tensor) {
        json_.array([&](std::size_t dimension) {
            if (dimension >= tensor.shape.size())
                refuse(reason::tensor, "the shape must be [rows] or [rows, values]; it has more dimensions");
            tensor.shape[dimension] = json_.size();
            tensor.dimensions = dimension + 1;
        });
        if (!tensor.dimensions) refuse(reason::tensor, "the shape must be [rows] or [rows, values], got []");
    }

    void check_shape(const Tensor& tensor, std::size_t index) {
        check_rows(tensor.rows(), limits_);
        if (index && tensor.rows() != request_.rows)
            refuse(reason::tensor, "the shape ", tensor.shape_text(), " has ", tensor.rows(), " rows, but the first input has ",
                   request_.rows);
        request_.rows = tensor.rows();
        if (tensor.width() > limits_.values) values_.count_values(tensor.width());
        values_.count_values(tensor.count());
    }

    std::string_view take_binary(std::size_t size) {
        if (size > binary_.size() - used_)
            refuse(reason::tensor, "binary_data_size is ", size, ", but only ", binary_.size() - used_, " bytes are left in the body");
        return binary_.substr(std::exchange(used_, used_ + size), size);
    }

    // Reads the elements from binary data, or else from JSON.
    void read_tensor(const Tensor& tensor, std::size_t index, std::optional<std::string_view> binary) {
        check_shape(tensor, index);
        const std::size_t column = columns_.find(tensor.name, last_);
        const bool is_ids = column == RequestColumns::unknown && tensor.name == "ids";
        if (is_ids) check_ids(tensor);
        else check_column(tensor, column);
        std::optional<BinaryElements> elements;
        if (binary) elements.emplace(tensor, *binary);
        if (is_ids) read_ids(tensor, elements);
        else read_column(tensor, column, elements);
        if (elements) elements->finish();
    }

    void read_column(const Tensor& tensor, std::size_t column, std::optional<BinaryElements>& binary) {
        table_.place(column, table_.cells.size(), 1);
        last_ = column;
        ColumnSink sink(tensor, table_);
        if (!binary) return read_data(json_, tensor, [&] { sink.add(read_element(json_, *tensor.datatype, table_.arena)); });
        for (std::size_t i = 0; i < tensor.count(); ++i) sink.add(binary->text(table_.arena));
    }

    void read_ids(const Tensor& tensor, std::optional<BinaryElements>& binary) {
        const auto add = [&](std::int64_t id) {
            if (id != static_cast<std::int32_t>(id)) refuse(reason::tensor, "the id ", id, " is out of range");
            request_.ids.push_back(static_cast<std::int32_t>(id));
        };
        request_.has_ids = true;
        if (!binary) return read_data(json_, tensor, [&] { add(read_integer(json_, *tensor.datatype)); });
        for (std::size_t i = 0; i < tensor.count(); ++i) add(binary->integer());
    }

    void check_ids(const Tensor& tensor) const {
        if (!scorer_.format().list_columns().empty())
            refuse(reason::tensor, "the model has multi-valued fields, so it needs one input per column instead of ids");
        if (std::string_view(tensor.datatype->name) != "INT32" && std::string_view(tensor.datatype->name) != "INT64")
            refuse(reason::tensor, "ids must be INT32 or INT64, got ", tensor.datatype->name);
        if (tensor.dimensions != 2 || tensor.width() != scorer_.fields())
            refuse(reason::tensor, "expected the shape [rows, ", scorer_.fields(), "], got ", tensor.shape_text());
        if (request_.has_ids) refuse(reason::tensor, "the input occurs twice");
    }

    void check_column(const Tensor& tensor, std::size_t column) const {
        if (column == RequestColumns::unknown) columns_.refuse_unknown(tensor.name);
        if (table_.has(column)) refuse(reason::tensor, "the input occurs twice");
        if (tensor.width() != 1 && !columns_.accepts_lists(column))
            refuse(reason::tensor, "expected the shape [rows] or [rows, 1], because the field is not multi-valued, got ",
                   tensor.shape_text());
    }

    // Checks that the request has each column, or nothing but ids.
    void check_complete() const {
        if (request_.has_ids && table_.cells.empty()) return;
        if (request_.has_ids) refuse(reason::tensor, "the request has both 'ids' and columns");
        for (std::size_t c = 0; c < columns_.size(); ++c)
            if (!table_.has(c))
                throw RequestError(bad_request, reason::column, "there is no input for column '" + columns_.name(c) + "'",
                                   columns_.name(c));
    }

    const RequestColumns& columns_;
    const Scorer& scorer_;
    const RequestLimits& limits_;
    CellTable& table_;
    InferRequest& request_;
    std::string_view binary_;
    JsonReader json_;
    ValueReader values_;
    std::size_t used_ = 0, last_ = columns_.size();
    bool binary_output_ = false;
};

}  // namespace

void read_infer(std::string_view body, std::size_t header_length, const RequestColumns& columns, const Scorer& scorer,
                const RequestLimits& limits, CellTable& table, InferRequest& request) {
    if (header_length > body.size())
        refuse(reason::request, "Inference-Header-Content-Length is ", header_length, ", but the body has ", body.size(), " bytes");
    const std::size_t length = header_length ? header_length : body.size();
    table.start(columns.size());
    request.id = {};
    request.outputs.clear();
    request.has_ids = false;
    request.ids.clear();
    request.rows = 0;
    InferReader(body.substr(0, length), body.substr(length), columns, scorer, limits, table, request).read();
    table.rows = request.rows;
}

}  // namespace fm2
