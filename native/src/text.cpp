#include "fm2/text.h"

#include <algorithm>
#include <charconv>

#include "fm2/list_cell.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t longest_quote = 1 << 20;  // a longer quoted cell has no closing quote
constexpr std::string_view blanks = " \t";

std::size_t find_or_end(std::string_view text, char character, std::size_t from) {
    return std::min(text.find(character, from), text.size());
}

std::string_view without_return(std::string_view line) {
    return !line.empty() && line.back() == '\r' ? line.substr(0, line.size() - 1) : line;
}

bool is_one(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && value == 1;
}

}  // namespace

class TextBlock::View : public Column {
public:
    View(const TextBlock& block, std::size_t index) : block_(block), cells_(&block.cells_[index * block.capacity_]) {}

    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        const char* text = block_.text_.data();
        const std::size_t size = block_.text_.size();
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) {
            const Cell cell = cells_[block_.rows_[first + i].slot];
            batch.cells[i] = {cell.begin <= size ? text + cell.begin : block_.copies_.data() + (cell.begin - size - 1), cell.size};
        }
    }

private:
    const TextBlock& block_;
    const Cell* cells_;
};

// A libffm field that may repeat. Its cells are "feature" or "feature:weight" items, separated by blanks, whatever the field's separator.
class TextBlock::LibffmList : public TextBlock::View {
public:
    using View::View;

    bool read_list(std::size_t row, const ListFormat& format, ListCell& cell) const override {
        static thread_local Batch batch;
        read(row, 1, batch);
        ListFormat items = format;
        items.separator = ' ';
        split_cell(batch.cells[0], items, cell);
        return true;
    }
};

void TextBlock::read(std::string_view text, const TextFormat& format, bool last) {
    text_ = text;
    separator_ = format.separator;
    last_ = last;
    columns_ = format.columns;
    lists_.clear();
    consumed_ = lines_ = 0;
    copies_.clear();
    rows_.clear();
    bad_.clear();
    // All bad rows share slot 0, whose cells are empty. A row has a line of its own, and a good row has a byte after each of its cells,
    // which limit the number of slots: neither long nor empty lines take much more memory than their text. A libffm row may omit fields.
    std::size_t good_rows = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    if (!format.libffm) good_rows = std::min(good_rows, text.size() / std::max<std::size_t>(columns_, 1));
    capacity_ = good_rows + 3;
    cells_.resize(std::max(cells_.size(), columns_ * capacity_));
    for (std::size_t column = 0; column < columns_; ++column) cells_[column * capacity_] = {0, 0};
    slots_ = 1;
    if (format.libffm) read_libffm(format);
    else if (format.quotes && text.find('"') != text.npos) read_quoted();
    else read_plain();
}

void TextBlock::read_plain() {
    marks_.resize(text_.size() + 1);
    std::size_t count = kernels().find_bytes(text_.data(), text_.size(), separator_, '\n', marks_.data());
    if (last_ && !text_.empty() && text_.back() != '\n') marks_[count++] = static_cast<std::uint32_t>(text_.size());
    std::size_t begin = 0, cell = 0, column = 0;
    Cell* out = cells(0);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t mark = marks_[i];
        if (column < columns_) *out = {static_cast<std::uint32_t>(cell), static_cast<std::uint32_t>(mark - cell)};
        ++column;
        out += capacity_;
        cell = mark + 1;
        if (mark < text_.size() && text_[mark] != '\n') continue;
        const std::size_t end = begin + without_return(text_.substr(begin, mark - begin)).size();
        if (end > begin) {
            if (column == columns_) (out - capacity_)->size -= static_cast<std::uint32_t>(mark - end);
            else fail_row(Fault::columns, std::to_string(column));
            finish_row(begin, end);
        }
        lines_ += mark < text_.size();
        begin = cell;
        column = 0;
        out = cells(0);
    }
    consumed_ = std::min(begin, text_.size());
}

void TextBlock::read_quoted() {
    std::size_t at = 0;
    while (at < text_.size() && read_quoted_row(at)) consumed_ = at;
}

// Reads the row at `at` and advances `at` to the next row; false if the text ends within the row.
bool TextBlock::read_quoted_row(std::size_t& at) {
    CellEnd after{at, at};
    std::size_t column = 0;
    for (std::size_t begin = at;; begin = after.next + 1) {
        Cell value;
        const bool quoted = begin < text_.size() && text_[begin] == '"';
        const Status status = quoted ? read_quoted_cell(begin, value, after) : read_unquoted_cell(begin, value, after);
        if (status == Status::truncated) return false;
        if (status == Status::broken) return at = skip_broken_line(at), true;
        if (column < columns_) *cells(column) = value;
        ++column;
        if (after.next == text_.size() || text_[after.next] != separator_) break;
    }
    const std::string_view row = text_.substr(at, after.end - at);
    if (!row.empty()) {
        if (column != columns_) fail_row(Fault::columns, std::to_string(column));
        finish_row(at, after.end);
    }
    lines_ += static_cast<std::size_t>(std::count(row.begin(), row.end(), '\n')) + (after.next < text_.size());
    at = std::min(after.next + 1, text_.size());
    return true;
}

TextBlock::Status TextBlock::read_unquoted_cell(std::size_t begin, Cell& value, CellEnd& after) const {
    const char marks[] = {separator_, '\n'};
    const std::size_t next = std::min(text_.find_first_of({marks, 2}, begin), text_.size());
    if (next == text_.size() && !last_) return Status::truncated;
    std::string_view plain = text_.substr(begin, next - begin);
    if (next == text_.size() || text_[next] == '\n') plain = without_return(plain);
    value = cell(plain);
    after = {begin + plain.size(), next};
    return Status::complete;
}

TextBlock::Status TextBlock::read_quoted_cell(std::size_t open, Cell& value, CellEnd& after) {
    const std::size_t copied = copies_.size();
    std::size_t at = open + 1;
    for (;; ++at) {
        const std::size_t quote = text_.find('"', at);
        if (quote == text_.npos && !last_ && text_.size() - open <= longest_quote) return Status::truncated;
        if (quote == text_.npos || quote - open > longest_quote) return Status::broken;
        copies_.append(text_, at, quote - at);
        at = quote + 1;
        if (at == text_.size() || text_[at] != '"') break;
        copies_ += '"';  // two quotes in a quoted cell are one quote
    }
    const std::string_view tail = text_.substr(at, 2);
    if (!last_ && (tail.empty() || tail == "\r")) return Status::truncated;  // the next byte decides
    const bool has_return = tail == "\r" || tail == "\r\n";
    if (!tail.empty() && !has_return && tail[0] != separator_ && tail[0] != '\n') return Status::broken;
    value = cell_since(copied);
    after = {at, at + has_return};
    return Status::complete;
}

// Skips one line of a row with unbalanced quotes; the next line may begin a valid row. Returns where that line begins.
std::size_t TextBlock::skip_broken_line(std::size_t begin) {
    const std::size_t end = find_or_end(text_, '\n', begin);
    const std::string_view line = without_return(text_.substr(begin, end - begin));
    fail_row(Fault::quote, line);
    finish_row(begin, begin + line.size());
    lines_ += end < text_.size();
    return std::min(end + 1, text_.size());
}

void TextBlock::read_libffm(const TextFormat& format) {
    using Libffm = TextFormat::Libffm;
    libffm_lists_ = format.libffm_lists;
    const bool repeated = std::ranges::any_of(libffm_lists_, [](Libffm field) { return field != Libffm::single; });
    lists_.resize(repeated ? libffm_lists_.size() : 0);
    for (std::size_t begin = 0; begin < text_.size(); begin = consumed_) {
        const std::size_t end = find_or_end(text_, '\n', begin);
        if (end == text_.size() && !last_) break;
        const std::string_view line = without_return(text_.substr(begin, end - begin));
        if (line.find_first_not_of(blanks) != line.npos) {
            read_libffm_line(line, format);
            finish_row(begin, begin + line.size());
        }
        lines_ += end < text_.size();
        consumed_ = std::min(end + 1, text_.size());
    }
}

void TextBlock::read_libffm_line(std::string_view line, const TextFormat& format) {
    for (std::size_t column = 0; column < columns_; ++column) *cells(column) = {0, 0};
    bool is_label = true;
    for (std::size_t at = line.find_first_not_of(blanks); at < line.size();) {
        const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
        const std::string_view item = line.substr(at, end - at);
        is_label ? read_libffm_label(item) : read_libffm_item(item, format);
        is_label = false;
        at = std::min(line.find_first_not_of(blanks, end), line.size());
    }
    finish_libffm_lists();
}

void TextBlock::read_libffm_label(std::string_view label) {
    if (label == "-1") {  // libffm writes 0 as -1
        const std::size_t copied = copies_.size();
        copies_ += '0';
        *cells(0) = cell_since(copied);
    } else {
        *cells(0) = cell(label.substr(label[0] == '+'));
    }
}

void TextBlock::read_libffm_item(std::string_view item, const TextFormat& format) {
    const std::size_t first = item.find(':'), second = item.find(':', first + 1);
    if (first == item.npos || second == item.npos || second == first + 1) return fail_row(Fault::item, item);
    const std::int32_t number = format.libffm_fields.find(item.substr(0, first));
    if (number == StringIndex::absent) return fail_row(Fault::item, item);
    const auto field = static_cast<std::size_t>(number);
    const bool weighted = is_list(field) && libffm_lists_[field] == TextFormat::Libffm::weighted;
    if (!weighted && !is_one(item.substr(second + 1))) return fail_row(Fault::value, item);
    if (is_list(field)) {
        lists_[field] += lists_[field].empty() ? "" : " ";
        lists_[field] += weighted ? item.substr(first + 1) : item.substr(first + 1, second - first - 1);
        return;
    }
    Cell& value = *cells(field + 1);
    if (value.size) return fail_row(Fault::repeated, item);
    value = cell(item.substr(first + 1, second - first - 1));
}

// The items of a field need not be next to each other, so its cell is a copy.
void TextBlock::finish_libffm_lists() {
    for (std::size_t field = 0; field < lists_.size(); ++field) {
        if (lists_[field].empty()) continue;
        const std::size_t copied = copies_.size();
        copies_ += lists_[field];
        *cells(field + 1) = cell_since(copied);
        lists_[field].clear();
    }
}

std::string_view TextBlock::row(std::size_t row) const { return text_.substr(rows_[row].begin, rows_[row].size); }

std::unique_ptr<Column> TextBlock::column(std::size_t index) const {
    if (index && is_list(index - 1)) return std::make_unique<LibffmList>(*this, index);
    return std::make_unique<View>(*this, index);
}

TextBlock::Cell TextBlock::cell(std::string_view text) const {
    return {static_cast<std::uint32_t>(text.data() - text_.data()), static_cast<std::uint32_t>(text.size())};
}

TextBlock::Cell TextBlock::cell_since(std::size_t copied) const {
    return {static_cast<std::uint32_t>(text_.size() + 1 + copied), static_cast<std::uint32_t>(copies_.size() - copied)};
}

void TextBlock::finish_row(std::size_t begin, std::size_t end) {
    rows_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin), static_cast<std::uint32_t>(lines_),
                     static_cast<std::uint32_t>(failed_ ? 0 : slots_++)});
    failed_ = false;
}

void TextBlock::fail_row(Fault fault, std::string_view value) {
    if (!failed_) bad_.push_back({rows_.size(), -1, fault, excerpt(value)});
    failed_ = true;
}

std::string excerpt(std::string_view value) {
    constexpr std::size_t longest = 60;
    if (value.size() <= longest) return std::string(value);
    std::size_t end = longest;
    while (end && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // do not split a UTF-8 character
    return std::string(value.substr(0, end)) + "...";
}

}  // namespace fm2
