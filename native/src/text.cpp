#include "fm2/text.h"

#include <algorithm>
#include <charconv>

#include "kernels/kernels.h"

namespace fm2 {
namespace {

// A quoted cell that runs on for longer than this was never closed.
constexpr std::size_t longest_quote = 1 << 20;

std::size_t find_or_end(std::string_view text, char mark, std::size_t from) {
    return std::min(text.find(mark, from), text.size());
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
            batch.cells[i] = {cell.begin <= size ? text + cell.begin : block_.side_.data() + (cell.begin - size - 1),
                              cell.size};
        }
    }

private:
    const TextBlock& block_;
    const Cell* cells_;
};

void TextBlock::read(std::string_view text, const TextFormat& format, bool last) {
    text_ = text;
    columns_ = format.columns;
    consumed_ = lines_ = 0;
    side_.clear();
    rows_.clear();
    bad_.clear();
    // Slot 0 is that of all bad rows: empty. A good row has a byte for every separator and one for its end, so that there
    // is a limit to the slots they need; only libffm's rows, which leave fields out, are counted by their ends.
    const std::size_t good_rows = format.libffm ? static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'))
                                                : text.size() / std::max<std::size_t>(columns_, 1);
    capacity_ = good_rows + 3;
    cells_.resize(std::max(cells_.size(), columns_ * capacity_));
    for (std::size_t column = 0; column < columns_; ++column) cells_[column * capacity_] = {0, 0};
    slots_ = 1;
    if (format.libffm)
        read_libffm(format, last);
    else if (format.quotes && text.find('"') != text.npos)
        read_quoted(format, last);
    else
        read_plain(format, last);
}

void TextBlock::read_plain(const TextFormat& format, bool last) {
    marks_.resize(text_.size() + 1);
    std::size_t count = kernels().find_bytes(text_.data(), text_.size(), format.separator, '\n', marks_.data());
    if (last && !text_.empty() && text_.back() != '\n') marks_[count++] = static_cast<std::uint32_t>(text_.size());
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
            if (column == columns_)
                (out - capacity_)->size -= static_cast<std::uint32_t>(mark - end);
            else
                fail_row(Fault::columns, std::to_string(column));
            finish_row(begin, end);
        }
        lines_ += mark < text_.size();
        begin = cell;
        column = 0;
        out = cells(0);
    }
    consumed_ = std::min(begin, text_.size());
}

void TextBlock::read_quoted(const TextFormat& format, bool last) {
    std::size_t at = 0;
    while (at < text_.size() && read_quoted_row(at, format, last)) consumed_ = at;
}

// Reads the row at `at` and moves behind it; false where the text ends before the row does.
bool TextBlock::read_quoted_row(std::size_t& at, const TextFormat& format, bool last) {
    const std::size_t begin = at;
    std::size_t place = begin, end = begin;
    for (std::size_t column = 0;; ++column, ++place) {
        Cell value;
        if (place < text_.size() && text_[place] == '"') {
            switch (read_quotes(place, format.separator, last, value)) {
                case Quotes::cut: return false;
                case Quotes::broken: return skip_broken_line(at), true;
                case Quotes::closed: break;
            }
            end = place;
            if (place < text_.size() && text_[place] == '\r') ++place;
        } else {
            const char marks[] = {format.separator, '\n'};
            const std::size_t stop = std::min(text_.find_first_of({marks, 2}, place), text_.size());
            if (stop == text_.size() && !last) return false;
            std::string_view plain = text_.substr(place, stop - place);
            if (stop == text_.size() || text_[stop] == '\n') plain = without_return(plain);
            value = cell(plain.data(), plain.size());
            end = place + plain.size();
            place = stop;
        }
        if (column < columns_) *cells(column) = value;
        if (place < text_.size() && text_[place] == format.separator) continue;
        if (end > begin && column + 1 != columns_) fail_row(Fault::columns, std::to_string(column + 1));
        break;
    }
    const auto inner_lines = std::count(text_.begin() + begin, text_.begin() + end, '\n');
    if (end > begin) finish_row(begin, end);
    at = std::min(place + 1, text_.size());
    lines_ += static_cast<std::size_t>(inner_lines) + (place < text_.size());
    return true;
}

// Reads the quoted cell at `place` and moves behind its closing quote.
TextBlock::Quotes TextBlock::read_quotes(std::size_t& place, char separator, bool last, Cell& value) {
    const std::size_t open = place++, kept = side_.size();
    for (;; ++place) {
        const std::size_t quote = text_.find('"', place);
        if (quote == text_.npos && !last && text_.size() - open <= longest_quote) return Quotes::cut;
        if (quote == text_.npos || quote - open > longest_quote) return Quotes::broken;
        side_.append(text_, place, quote - place);
        place = quote + 1;
        if (place == text_.size() || text_[place] != '"') break;
        side_ += '"';
    }
    if (place == text_.size() && !last) return Quotes::cut;
    value = {static_cast<std::uint32_t>(text_.size() + 1 + kept), static_cast<std::uint32_t>(side_.size() - kept)};
    const std::string_view rest = text_.substr(place, 2);
    if (rest == "\r" && !last) return Quotes::cut;  // what follows it decides
    const bool ends = rest.empty() || rest[0] == separator || rest[0] == '\n' || rest == "\r\n" || rest == "\r";
    return ends ? Quotes::closed : Quotes::broken;
}

// Gives up a row whose quotes do not match; only its first line is lost, for the next may begin a row again.
void TextBlock::skip_broken_line(std::size_t& at) {
    const std::size_t end = find_or_end(text_, '\n', at);
    const std::string_view line = without_return(text_.substr(at, end - at));
    fail_row(Fault::quote, line);
    finish_row(at, at + line.size());
    lines_ += end < text_.size();
    at = std::min(end + 1, text_.size());
}

void TextBlock::read_libffm(const TextFormat& format, bool last) {
    for (std::size_t begin = 0; begin < text_.size();) {
        const std::size_t end = find_or_end(text_, '\n', begin);
        if (end == text_.size() && !last) break;
        const std::string_view line = without_return(text_.substr(begin, end - begin));
        const std::size_t label_begin = line.find_first_not_of(" \t");
        if (label_begin != line.npos) {
            for (std::size_t column = 0; column < columns_; ++column) *cells(column) = {0, 0};
            std::size_t at = label_begin;
            for (bool label = true; at < line.size(); label = false) {
                const std::size_t stop = std::min(line.find_first_of(" \t", at), line.size());
                const std::string_view item = line.substr(at, stop - at);
                if (label && item == "-1") {  // libffm's way to write 0
                    *cells(0) = {static_cast<std::uint32_t>(text_.size() + 1 + side_.size()), 1};
                    side_ += '0';
                } else if (label) {
                    *cells(0) = cell(item.data() + (item[0] == '+'), item.size() - (item[0] == '+'));
                } else {
                    read_libffm_item(item, format);
                }
                at = std::min(line.find_first_not_of(" \t", stop), line.size());
            }
            finish_row(begin, begin + line.size());
        }
        lines_ += end < text_.size();
        begin = std::min(end + 1, text_.size());
        consumed_ = begin;
    }
}

void TextBlock::read_libffm_item(std::string_view item, const TextFormat& format) {
    const std::size_t first = item.find(':'), second = item.find(':', first + 1);
    if (first == item.npos || second == item.npos || second == first + 1) return fail_row(Fault::item, item);
    const std::int32_t field = format.libffm_fields.find(item.substr(0, first));
    if (field == Table::absent) return fail_row(Fault::item, item);
    if (!is_one(item.substr(second + 1))) return fail_row(Fault::value, item);
    Cell& place = *cells(static_cast<std::size_t>(field) + 1);
    if (place.size) return fail_row(Fault::repeated, item);
    place = cell(item.data() + first + 1, second - first - 1);
}

std::string_view TextBlock::row(std::size_t row) const { return text_.substr(rows_[row].begin, rows_[row].size); }

std::unique_ptr<Column> TextBlock::column(std::size_t index) const { return std::make_unique<View>(*this, index); }

TextBlock::Cell TextBlock::cell(const char* begin, std::size_t size) const {
    return {static_cast<std::uint32_t>(begin - text_.data()), static_cast<std::uint32_t>(size)};
}

void TextBlock::finish_row(std::size_t begin, std::size_t end) {
    rows_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin),
                     static_cast<std::uint32_t>(lines_), static_cast<std::uint32_t>(failed_ ? 0 : slots_++)});
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
    while (end && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // not within a character of UTF-8
    return std::string(value.substr(0, end)) + "...";
}

}  // namespace fm2
