// Checks for the C++ tests: a failed one is printed and counted.
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

#define TEST(name)                                 \
    static void name();                            \
    static const Register register_##name{#name, name}; \
    static void name()

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            ++failures();                                                                       \
            std::cerr << __FILE__ << ":" << __LINE__ << ": not true: " << #condition << "\n";   \
        }                                                                                       \
    } while (false)
