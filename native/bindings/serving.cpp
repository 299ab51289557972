// Serving: bodies of requests in, bodies of responses out.
#include "bindings.h"
#include "fm2/endpoint.h"
#include "ranking.h"

namespace {

struct Reply {
    fm2::Response response;
    nb::bytes body;
};

using Counters = Array<std::uint64_t, 1>;

// An endpoint, and the Python objects that it refers to.
class ServedModel {
public:
    ServedModel(const Compiled& model, Counters counters, std::string name, std::string version, std::size_t max_rows,
                std::size_t max_values, std::size_t threads, nb::object score)
        : counters_(std::move(counters)),
          score_(std::move(score)),
          endpoint_(model,
                    {std::move(name),
                     std::move(version),
                     {max_rows, max_values},
                     threads,
                     {counters_.data(), counters_.size()},
                     score_.is_none() ? std::function<void(const fm2::Rows&, float*)>() : std::bind_front(&ServedModel::call, this)}) {}

    Reply predict(const nb::bytes& body) const {
        return reply([&, text = view(body)](fm2::Response& response) { endpoint_.predict(text, response); });
    }
    Reply infer(const nb::bytes& body, std::size_t header_length) const {
        return reply([&, text = view(body)](fm2::Response& response) { endpoint_.infer(text, header_length, response); });
    }

    Reply rank(const nb::bytes& body) const {
        return reply([&, text = view(body)](fm2::Response& response) { endpoint_.rank(text, response); });
    }

    void set_catalog(const std::string& name, nb::handle_t<Ranking> ranking, const Array<const float, 2>& rows,
                     const OptionalFloats& shifts, std::optional<std::vector<std::string>> items) {
        expect_size("set_catalog", "shifts", shifts, rows.shape(0));
        // A request on another thread may be the last one to use the arrays.
        const auto release = [](Arrays* arrays) {
            nb::gil_scoped_acquire acquire;
            delete arrays;
        };
        const std::shared_ptr<const Arrays> owner(new Arrays{nb::borrow(ranking), rows, shifts}, release);
        endpoint_.set_catalog(name, {nb::cast<const Ranking&>(ranking).ranker.get(),
                                     rows.data(),
                                     rows.shape(0),
                                     rows.shape(1),
                                     pointer(shifts),
                                     std::move(items).value_or(std::vector<std::string>()),
                                     owner,
                                     {},
                                     {}});
    }
    bool remove_catalog(const std::string& name) { return endpoint_.remove_catalog(name); }

private:
    // What a catalog keeps alive.
    struct Arrays {
        nb::object ranking;
        Array<const float, 2> rows;
        OptionalFloats shifts;
    };

    static std::string_view view(const nb::bytes& body) { return {body.c_str(), body.size()}; }

    template <class Answer>
    static Reply reply(const Answer& answer) {
        static thread_local std::string buffer;
        fm2::Response response;
        response.body = std::move(buffer);  // has the capacity
        {
            nb::gil_scoped_release release;
            answer(response);
        }
        nb::bytes body(response.body.data(), response.body.size());
        buffer = std::move(response.body);
        return {std::move(response), std::move(body)};
    }

    // Calls score(ids, lists) and copies its logits.
    void call(const fm2::Rows& rows, float* logits) const {
        nb::gil_scoped_acquire acquire;
        std::vector<std::int32_t> ids(rows.ids, rows.ids + rows.count * rows.fields);
        auto* owned = new std::vector<std::int32_t>(std::move(ids));
        nb::capsule owner(owned, [](void* vector) noexcept { delete static_cast<std::vector<std::int32_t>*>(vector); });
        const Ids array(owned->data(), {rows.count, rows.fields}, owner);
        OwnedLists lists;
        for (const fm2::Lists& given : rows.lists) {
            if (!given) {
                lists.emplace_back();
                continue;
            }
            lists.emplace_back(std::tuple{to_numpy(std::vector(given.offsets.begin(), given.offsets.end())),
                                          to_numpy(std::vector(given.ids.begin(), given.ids.end())),
                                          to_numpy(std::vector(given.weights, given.weights + given.ids.size()))});
        }
        try {
            const auto result = nb::cast<ConstFloats>(score_(array, lists));
            expect_size("score", "the logits", result, rows.count);
            std::copy_n(result.data(), rows.count, logits);
        } catch (const nb::python_error& error) {  // may not outlive the GIL
            throw std::runtime_error(error.what());
        } catch (const nb::cast_error&) {
            throw std::runtime_error("score must return a float32 array of logits");
        }
    }

    Counters counters_;
    nb::object score_;
    fm2::Endpoint endpoint_;
};

}  // namespace

void init_serving(nb::module_& module) {
    nb::class_<Reply>(module, "Reply", "The response to a request.")
        .def_prop_ro(
            "status", [](const Reply& reply) { return reply.response.status; }, "200, or the HTTP status of a failure.")
        .def_ro("body", &Reply::body, "The complete body; of a failure a JSON object with the member error.")
        .def_prop_ro(
            "header_length", [](const Reply& reply) { return reply.response.header_length; },
            "The bytes of JSON before binary data; 0 if there is none.")
        .def_prop_ro(
            "rows", [](const Reply& reply) { return reply.response.rows; }, "The number of scored rows.")
        .def_prop_ro(
            "predictions", [](const Reply& reply) { return reply.response.predictions; }, "The number of returned probabilities.")
        .def_prop_ro("parse_ns", [](const Reply& reply) { return reply.response.parse_ns; })
        .def_prop_ro("score_ns", [](const Reply& reply) { return reply.response.score_ns; })
        .def_prop_ro("probability_sum", [](const Reply& reply) { return reply.response.probability_sum; })
        .def_prop_ro("reason", [](const Reply& reply) { return reply.response.reason; }, "A label of the failure; empty if there is none.");
    nb::class_<ServedModel>(module, "Endpoint", "A compiled model behind HTTP. Any number of threads may use it.")
        .def(nb::init<const Compiled&, Counters, std::string, std::string, std::size_t, std::size_t, std::size_t, nb::object>(), "model"_a,
             "counters"_a.noconvert(), nb::kw_only(), "name"_a, "version"_a, "max_rows"_a, "max_values"_a, "threads"_a = 0,
             "score"_a.none() = nb::none(), nb::keep_alive<1, 2>())
        .def("predict", &ServedModel::predict, "body"_a, "Answer a request with rows or columns of values.")
        .def("infer", &ServedModel::infer, "body"_a, "header_length"_a = 0, "Answer an Open Inference Protocol request.")
        .def("rank", &ServedModel::rank, "body"_a, "Answer a request with a context and candidates, or a catalog.")
        .def("set_catalog", &ServedModel::set_catalog, "name"_a, "ranking"_a, "rows"_a.noconvert(), "shifts"_a.noconvert().none(),
             "items"_a.none(), "Add or replace a catalog: the rows and shifts of fm2.Catalog, and the names of its items.")
        .def("remove_catalog", &ServedModel::remove_catalog, "name"_a, "Remove a catalog; return whether there was one.");
}
