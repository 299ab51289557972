// The instruction set and the number of threads.
#include "bindings.h"
#include "fm2/pool.h"

void init_cpu(nb::module_& module) {
    module.def("cpu_levels", &fm2::cpu_levels, "Return the instruction-set levels that this machine supports, slowest first.");
    module.def("cpu_level", &fm2::cpu_level, "Return the level in use; the environment variable FM2_SIMD forces one.");
    module.def("default_threads", &fm2::default_threads, "Return the default number of threads.");
    module.def(
        "find_bytes",
        [](nb::bytes text, char a, char b, const std::string& level) {
            std::vector<std::uint32_t> positions(text.size() + 64);
            positions.resize(fm2::kernels(level).find_bytes(text.c_str(), text.size(), a, b, positions.data()));
            return positions;
        },
        "text"_a, "a"_a, "b"_a, "level"_a, "Run the kernel of that name at one level; for tests.");
}
