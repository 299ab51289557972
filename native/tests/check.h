// A minimal test framework: TEST defines a test, CHECK reports a false condition and continues.
//
// It is our own because neither doctest nor Catch2 has a PyPI package: `make test` would need a system package, or
// this repository a copy of a header (7,000 lines) that is almost as long as the library under test.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <vector>

struct Test {
    std::string name;
    std::function<void()> body;
};

inline std::vector<Test>& tests() {
    static std::vector<Test> list;  // not a global: it is filled before main, in any order of files
    return list;
}

inline int failures = 0;

#define TEST(name)                                                                                   \
    static void name();                                                                              \
    [[maybe_unused]] static const bool registered_##name = (tests().push_back({#name, name}), true); \
    static void name()

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            ++failures;                                                                           \
            std::cerr << __FILE__ << ":" << __LINE__ << ": check failed: " << #condition << "\n"; \
        }                                                                                         \
    } while (false)

// Whether a call throws this exception; other exceptions fail the test.
template <class Exception, class Body>
bool throws(const Body& body) {
    try {
        body();
    } catch (const Exception&) {
        return true;
    }
    return false;
}
