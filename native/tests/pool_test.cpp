#include "fm2/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

TEST(every_iteration_runs_once) {
    for (const std::size_t threads : {1, 2, 3, 8}) {
        std::vector<std::atomic<int>> runs(1000);
        for (int repeat = 0; repeat < 50; ++repeat) fm2::parallel_for(runs.size(), threads, [&](std::size_t i) { ++runs[i]; });
        for (const auto& count : runs) CHECK(count == 50);
    }
}

TEST(an_empty_loop_calls_nothing) {
    fm2::parallel_for(0, 4, [](std::size_t) { CHECK(false); });
}

TEST(the_first_exception_is_rethrown_and_the_pool_still_works) {
    struct Seven {};
    CHECK(throws<Seven>([] {
        fm2::parallel_for(100, 3, [](std::size_t i) {
            if (i == 7) throw Seven();
        });
    }));
    std::atomic<int> count{0};
    fm2::parallel_for(10, 3, [&](std::size_t) { ++count; });
    CHECK(count == 10);
}

TEST(nested_and_concurrent_loops_run) {
    std::atomic<int> count{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([&] {
            for (int repeat = 0; repeat < 100; ++repeat)
                fm2::parallel_for(3, 2, [&](std::size_t) { fm2::parallel_for(2, 2, [&](std::size_t) { ++count; }); });
        });
    for (std::thread& caller : callers) caller.join();
    CHECK(count == 4 * 100 * 3 * 2);
}

TEST(a_forked_child_can_use_the_pool) {
    fm2::parallel_for(4, 2, [](std::size_t) {});
    const pid_t child = fork();
    if (child == 0) {
        std::atomic<int> count{0};
        fm2::parallel_for(100, 2, [&](std::size_t) { ++count; });
        _exit(count == 100 ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(members_of_a_team_wait_for_each_other) {
    for (const std::size_t threads : {1, 2, 3, 8}) {
        std::vector<std::atomic<int>> rounds(1000);
        std::atomic<int> early{0};
        fm2::parallel_team(threads, [&](const fm2::Member& member) {
            for (std::size_t i = 0; i < rounds.size(); ++i) {
                ++rounds[i];
                member.barrier.wait();
                if (rounds[i] != static_cast<int>(member.of)) ++early;
            }
        });
        CHECK(early == 0);
        for (const auto& round : rounds) CHECK(round == static_cast<int>(threads));
    }
}

TEST(a_team_inside_a_loop_has_one_member) {
    std::atomic<int> count{0};
    fm2::parallel_for(4, 2, [&](std::size_t) {
        fm2::parallel_team(3, [&](const fm2::Member& member) {
            member.barrier.wait();
            if (member.number == 0 && member.of == 1) ++count;
        });
    });
    CHECK(count == 4);
}
