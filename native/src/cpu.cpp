#include "kernels/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace fm2 {
namespace {

struct Level {
    std::string name;
    const Kernels* kernels;
};

const std::vector<Level>& levels() {
    static const std::vector<Level> supported = [] {
        std::vector<Level> list{{"generic", &generic::kernels}};
#ifdef FM2_HAS_X86_64_V3
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
            __builtin_cpu_supports("f16c"))
            list.push_back({"x86-64-v3", &x86_64_v3::kernels});
#endif
        return list;
    }();
    return supported;
}

const Level& chosen() {
    static const Level& level = []() -> const Level& {
        const char* name = std::getenv("FM2_SIMD");
        if (!name || !*name) return levels().back();
        for (const Level& candidate : levels())
            if (candidate.name == name) return candidate;
        std::string known;
        for (const Level& candidate : levels()) known += (known.empty() ? "" : ", ") + candidate.name;
        throw std::runtime_error("FM2_SIMD must be one of " + known + " on this machine, got '" + std::string(name) + "'");
    }();
    return level;
}

}  // namespace

const std::vector<std::string>& cpu_levels() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const Level& level : levels()) list.push_back(level.name);
        return list;
    }();
    return names;
}

const std::string& cpu_level() { return chosen().name; }

const Kernels& kernels() { return *chosen().kernels; }

const Kernels& kernels(const std::string& name) {
    for (const Level& level : levels())
        if (level.name == name) return *level.kernels;
    throw std::invalid_argument("unknown instruction-set level '" + name + "'");
}

}  // namespace fm2
