#include <algorithm>

#include "endpoint_scratch.h"
#include "fm2/expect.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t catalog_top = 100;  // the default

// The ids and lists of some fields, in their order.
struct SideRows {
    std::vector<std::int32_t> ids;
    std::vector<Lists> lists;
    Rows rows;

    SideRows(const Rows& complete, std::span<const std::size_t> fields) {
        ids.reserve(complete.count * fields.size());
        for (std::size_t r = 0; r < complete.count; ++r)
            for (const std::size_t field : fields) ids.push_back(complete.row(r)[field]);
        for (const std::size_t field : fields)
            if (!complete.lists.empty()) lists.push_back(complete.lists[field]);
        rows = {ids.data(), complete.count, fields.size(), lists};
    }
    SideRows(const SideRows&) = delete;  // rows refer to ids and lists
    SideRows& operator=(const SideRows&) = delete;
};

}  // namespace

struct Endpoint::RankRequest {
    std::string_view id;  // as JSON
    std::optional<std::size_t> context;  // the first of its cells
    bool has_candidates = false;
    std::optional<std::string_view> catalog;
    std::optional<std::size_t> top;
};

// Columns and fields divided into context and candidates.
struct Endpoint::Sides {
    std::vector<std::uint8_t> context_columns, context_fields, candidate_fields;  // 1 for those of the side
    std::unique_ptr<Ranker> ranker;  // null if the model has none: then complete rows are scored
};

void Endpoint::set_catalog(const std::string& name, Catalog catalog) {
    expect(&catalog.ranker->scorer() == &model_.scorer, "catalog '", name, "' belongs to another model");
    expect(!options_.score, "the model cannot have catalogs, because candidates cannot be precomputed");
    expect(catalog.stride > catalog.ranker->width(), "catalog '", name, "' has rows of ", catalog.stride, " floats; expected more than ",
           catalog.ranker->width());
    expect(catalog.items.empty() || catalog.items.size() == catalog.count, "catalog '", name, "' has ", catalog.count, " rows, but ",
           catalog.items.size(), " items");
    const Encoder& encoder = model_.encoder.encoder();
    catalog.context_fields.assign(encoder.fields(), 0);
    for (const std::size_t field : catalog.ranker->context()) catalog.context_fields[field] = 1;
    catalog.candidate_columns.assign(columns_.size(), 0);
    for (std::size_t f = 0; f < encoder.fields(); ++f) {
        const Field& field = encoder.field(f);
        if (catalog.context_fields[f] || field.is_derived()) continue;
        catalog.candidate_columns[field.column] = 1;
        if (field.list && field.list->weight_column) catalog.candidate_columns[*field.list->weight_column] = 1;
    }
    for (std::string& item : catalog.items) append_json(item, std::exchange(item, {}));
    const auto made = std::make_shared<const Catalog>(std::move(catalog));
    std::shared_ptr<const Catalog> old;  // is deleted after the lock
    const std::lock_guard lock(mutex_);
    old = std::exchange(catalogs_[name], made);
}

bool Endpoint::remove_catalog(std::string_view name) {
    std::shared_ptr<const Catalog> old;
    const std::lock_guard lock(mutex_);
    const auto found = catalogs_.find(name);
    if (found == catalogs_.end()) return false;
    old = std::move(found->second);
    catalogs_.erase(found);
    return true;
}

std::shared_ptr<const Catalog> Endpoint::catalog(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto found = catalogs_.find(name);
    if (found != catalogs_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, catalog] : catalogs_) names.push_back(known);
    throw RequestError(not_found, reason::catalog,
                       "unknown catalog " + quoted(name) + "; " + (names.empty() ? "the model has none" : suggest(name, names)));
}

void Endpoint::rank(std::string_view body, Response& response) const {
    answer(response, [&](Scratch& scratch, Clock::time_point began) {
        const RankRequest request = read_rank(body, scratch);
        scratch.counts.assign(2 * model_.scorer.fields(), 0);
        if (request.catalog) rank_catalog(request, began, scratch, response);
        else rank_candidates(request, began, scratch, response);
        add_counts(scratch);
    });
}

Endpoint::RankRequest Endpoint::read_rank(std::string_view body, Scratch& scratch) const {
    CellTable& table = scratch.table;
    table.start(columns_.size());
    JsonReader json(body, table.arena);
    ValueReader values(json, columns_, options_.limits, table);
    RankRequest request;
    const auto once = [](bool seen, std::string_view key) {
        if (seen) refuse(reason::request, "'", key, "' occurs twice");
    };
    json.object([&](std::string_view key) {
        if (key == "context") {
            once(request.context.has_value(), key);
            request.context = table.cells.size();
            try {
                values.row("the object");
            } catch (RequestError& error) {
                error.prefix("context");
                throw;
            }
        } else if (key == "candidates") {
            once(request.has_candidates, key);
            request.has_candidates = true;
            values.table("candidates");
        } else if (key == "catalog") {
            once(request.catalog.has_value(), key);
            request.catalog = json.string();
        } else if (key == "top") {
            once(request.top.has_value(), key);
            request.top = json.size();
        } else if (key == "id") {
            if (json.peek() != '"') json.expected("a string as 'id'");
            request.id = json.raw();
        } else {
            static const std::vector<std::string> keys{"context", "candidates", "catalog", "top", "id"};
            refuse(reason::request, "unknown key ", quoted(key), "; ", suggest(key, keys));
        }
    });
    json.finish();
    if (!request.context) refuse(reason::request, "the request has no 'context'");
    if (request.has_candidates == request.catalog.has_value())
        refuse(reason::request, "the request must have either 'candidates' or 'catalog'");
    return request;
}

// Returns how the context of a request divides the columns. Rankers of recent divisions are kept.
std::shared_ptr<const Endpoint::Sides> Endpoint::sides(const RankRequest& request, const CellTable& table) const {
    constexpr std::size_t most = 16;
    static thread_local std::string columns;
    columns.resize(columns_.size());
    for (std::size_t c = 0; c < columns.size(); ++c) columns[c] = table.cells[*request.context + c].list != Cell::absent;
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = sides_.find(columns); found != sides_.end()) return found->second;
    }
    std::shared_ptr<const Sides> made = make_sides({columns.begin(), columns.end()});
    const std::lock_guard lock(mutex_);
    if (sides_.size() >= most) sides_.clear();
    return sides_.emplace(columns, std::move(made)).first->second;
}

std::shared_ptr<const Endpoint::Sides> Endpoint::make_sides(std::vector<std::uint8_t> context_columns) const {
    const Encoder& encoder = model_.encoder.encoder();
    auto sides = std::make_shared<Sides>();
    std::vector<std::uint8_t>& in_context = sides->context_fields;
    in_context.resize(encoder.fields());
    for (std::size_t f = 0; f < encoder.fields(); ++f) {
        const Field& field = encoder.field(f);
        if (field.is_derived()) continue;
        in_context[f] = context_columns[field.column];
        if (field.list && field.list->weight_column && context_columns[*field.list->weight_column] != in_context[f]) {
            const std::string &weights = columns_.name(*field.list->weight_column), &values = columns_.name(field.column);
            throw RequestError(bad_request, reason::column,
                               "column '" + weights + "' has the weights of '" + values + "', but is not on the same side", weights);
        }
    }
    for (const bool trees : {false, true})  // trees may read crosses
        for (std::size_t f = 0; f < encoder.fields(); ++f)
            if (encoder.field(f).is_derived() && encoder.field(f).trees == trees)
                in_context[f] = std::ranges::all_of(encoder.field(f).parts, [&](std::size_t part) { return in_context[part] != 0; });
    std::vector<std::size_t> fields;
    for (std::size_t f = 0; f < encoder.fields(); ++f) {
        sides->candidate_fields.push_back(!in_context[f]);
        if (in_context[f]) fields.push_back(f);
    }
    sides->context_columns = std::move(context_columns);
    if (options_.score) return sides;
    try {
        sides->ranker = Ranker::make(model_.shared, std::move(fields), encoder.crosses());
    } catch (const std::invalid_argument&) {  // the plan has no inner product of context and candidate
    }
    return sides;
}

// Encodes the context as a row in which all candidates' columns are missing.
void Endpoint::encode_context(const RankRequest& request, Scratch& scratch) const {
    CellTable& table = scratch.table;
    const std::size_t rows = std::exchange(table.rows, 1);
    scratch.places.resize(columns_.size());
    table.swap_places(scratch.places);
    table.place_row(*request.context);
    table.encode(model_, scratch.context, 1);
    table.swap_places(scratch.places);
    table.rows = rows;
}

// Checks that each column is on one side, and adds the context to all candidates.
void Endpoint::join_sides(const RankRequest& request, const Sides& sides, CellTable& table) const {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (!sides.context_columns[c]) continue;
        for (std::size_t r = 0; table.has(c) && r < table.rows; ++r)
            if (table.cell(c, r).list != Cell::absent)
                throw RequestError(bad_request, reason::column,
                                   "candidates[" + std::to_string(r) + "]: column '" + columns_.name(c) + "' is also in the context",
                                   columns_.name(c));
        table.place(c, *request.context + c, 0);
    }
    check_columns(columns_, table);
}

std::size_t Endpoint::top_of(const RankRequest& request, std::size_t count, std::size_t fallback) const {
    const std::size_t top = std::min(request.top.value_or(fallback), count);
    if (top > options_.limits.rows)
        throw RequestError(too_large, reason::rows, "'top' may be at most " + std::to_string(options_.limits.rows));
    return top;
}

void Endpoint::rank_candidates(const RankRequest& request, Clock::time_point began, Scratch& scratch, Response& response) const {
    CellTable& table = scratch.table;
    const std::shared_ptr<const Sides> sides = this->sides(request, table);
    encode_context(request, scratch);
    join_sides(request, *sides, table);
    table.encode(model_, scratch.context, sides->candidate_fields, scratch.rows, options_.threads);
    const Rows rows = scratch.rows.view(model_.scorer), context = scratch.context.view(model_.scorer);
    const std::size_t top = top_of(request, rows.count, rows.count);
    const Clock::time_point parsed = Clock::now();
    scratch.logits.resize(rows.count);
    if (const Ranker* ranker = sides->ranker.get()) {
        const SideRows given(context, ranker->context()), candidates(rows, ranker->candidate());
        const Query query = ranker->query(kernels(), given.rows);
        ranker->score(kernels(), query, candidates.rows, scratch.logits.data(), options_.threads);
    } else {
        run(rows, scratch.logits.data());
    }
    const Calibration& calibration = model_.scorer.calibration();
    start_ranking(scratch);
    for (const TopRow& best : top_scores(scratch.logits.data(), rows.count, top)) {
        const auto row = static_cast<std::size_t>(best.row);
        add_ranked(row, scratch.logits[row], calibration.shift(rows.row(row)), scratch);
    }
    count(context, sides->context_fields, scratch);
    count(rows, sides->candidate_fields, scratch);
    response.rows = rows.count;
    response.parse_ns = nanoseconds(parsed - began);
    response.score_ns = nanoseconds(Clock::now() - parsed);
    write_ranking(request, nullptr, scratch, response);
}

void Endpoint::rank_catalog(const RankRequest& request, Clock::time_point began, Scratch& scratch, Response& response) const {
    const std::shared_ptr<const Catalog> catalog = this->catalog(*request.catalog);
    for (std::size_t c = 0; c < columns_.size(); ++c)
        if (catalog->candidate_columns[c] && scratch.table.cells[*request.context + c].list != Cell::absent)
            throw RequestError(bad_request, reason::column,
                               "context: column '" + columns_.name(c) + "' belongs to the items of catalog " + quoted(*request.catalog),
                               columns_.name(c));
    encode_context(request, scratch);
    const Rows context = scratch.context.view(model_.scorer);
    const std::size_t top = top_of(request, catalog->count, catalog_top);
    const Clock::time_point parsed = Clock::now();
    const SideRows given(context, catalog->ranker->context());
    Query query = catalog->ranker->query(kernels(), given.rows);
    query.vector.push_back(1);  // multiplies the candidates' own parts
    const float shift = model_.scorer.calibration().shift(catalog->ranker->context(), given.rows.ids);
    start_ranking(scratch);
    for (const TopRow& best : top_rows(kernels(), catalog->rows, catalog->stride, catalog->count, query.vector.data(), query.vector.size(),
                                       top, options_.threads)) {
        const auto row = static_cast<std::size_t>(best.row);
        add_ranked(row, best.score + query.base, shift + (catalog->shifts ? catalog->shifts[row] : 0), scratch);
    }
    count(context, catalog->context_fields, scratch);
    response.rows = catalog->count;
    response.parse_ns = nanoseconds(parsed - began);
    response.score_ns = nanoseconds(Clock::now() - parsed);
    write_ranking(request, catalog.get(), scratch, response);
}

void Endpoint::start_ranking(Scratch& scratch) {
    scratch.indices.clear();
    scratch.probabilities.clear();
}

void Endpoint::add_ranked(std::size_t row, float logit, float shift, Scratch& scratch) const {
    check_finite(logit, row);
    scratch.indices.push_back(row);
    scratch.probabilities.push_back(model_.scorer.calibration().probability(logit, shift));
}

void Endpoint::write_ranking(const RankRequest& request, const Catalog* catalog, const Scratch& scratch, Response& response) const {
    std::string& out = response.body;
    out = predict_head_;
    if (!request.id.empty()) (out += R"(,"id":)") += request.id;
    append_numbers<std::uint64_t>(out += R"(,"indices":)", scratch.indices);
    append_numbers<float>(out += R"(,"probabilities":)", scratch.probabilities);
    if (catalog && !catalog->items.empty()) {
        out += R"(,"items":[)";
        for (std::size_t i = 0; i < scratch.indices.size(); ++i) {
            if (i) out += ',';
            out += catalog->items[scratch.indices[i]];
        }
        out += ']';
    }
    out += '}';
    sum_probabilities(scratch.probabilities, response);
}

}  // namespace fm2
