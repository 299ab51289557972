#include "check.h"

int main() {
    int failed_tests = 0;
    for (const Test& test : tests()) {
        const int before = failures();
        try {
            test.body();
        } catch (const std::exception& error) {
            ++failures();
            std::cerr << test.name << " threw: " << error.what() << "\n";
        }
        failed_tests += failures() != before;
    }
    std::cout << tests().size() - static_cast<std::size_t>(failed_tests) << " passed, " << failed_tests << " failed\n";
    return failed_tests != 0;
}
