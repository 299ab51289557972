// Usage: fm2_tests [TEST_TO_SKIP ...]
#include <algorithm>
#include <exception>
#include <span>

#include "check.h"

namespace {

bool passes(const Test& test) {
    const int failures_before = failures;
    try {
        test.body();
    } catch (const std::exception& error) {
        ++failures;
        std::cerr << test.name << ": unexpected exception: " << error.what() << "\n";
    }
    return failures == failures_before;
}

}  // namespace

int main(int argc, char** argv) {
    const std::span<char*> names_to_skip(argv + 1, argv + argc);
    int passed = 0, failed = 0, skipped = 0;
    for (const Test& test : tests()) {
        const bool skip = std::ranges::find(names_to_skip, test.name) != names_to_skip.end();
        ++(skip ? skipped : passes(test) ? passed : failed);
    }
    std::cout << passed << " passed, " << failed << " failed, " << skipped << " skipped\n";
    return failed != 0;
}
