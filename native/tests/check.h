// A minimal test framework: TEST defines a test, CHECK reports a false condition and continues.
//
// We use our own 50 lines because neither doctest nor Catch2 has a PyPI package: `make test` would need a system package, or
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
    static std::vector<Test> list;
    return list;
}

inline int& failures() {
    static int count = 0;
    return count;
}

struct Register {
    Register(std::string name, std::function<void()> body) { tests().push_back({std::move(name), std::move(body)}); }
};

#define TEST(name)                                      \
    static void name();                                 \
    static const Register register_##name{#name, name}; \
    static void name()

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            ++failures();                                                                         \
            std::cerr << __FILE__ << ":" << __LINE__ << ": check failed: " << #condition << "\n"; \
        }                                                                                         \
    } while (false)
