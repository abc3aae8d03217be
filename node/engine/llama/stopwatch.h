// Time that a thread spends and time that it runs.
#ifndef TANDEM_STOPWATCH_H
#define TANDEM_STOPWATCH_H

#include <chrono>

#if defined(__linux__)
#include <sys/resource.h>
#include <time.h>
#endif

#include "bridge.h"

class stopwatch {
public:
    stopwatch() : start_(now()) {}

    td_timing read() const {
        state s = now();
        int64_t wall = s.wall_ns - start_.wall_ns, cpu = s.cpu_ns - start_.cpu_ns;
        // A thread that waited for the disk was not kept from running.
        bool known = s.cpu_ns > 0 && s.disk_reads == start_.disk_reads;
        return td_timing{wall, known ? cpu : wall};
    }

private:
    struct state {
        int64_t wall_ns;
        int64_t cpu_ns;
        int64_t disk_reads;
    };

    static state now() {
        auto since = std::chrono::steady_clock::now().time_since_epoch();
        state s{std::chrono::duration_cast<std::chrono::nanoseconds>(since).count(), 0, 0};
#if defined(__linux__)
        timespec t{};
        rusage u{};
        if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 && getrusage(RUSAGE_THREAD, &u) == 0) {
            s.cpu_ns = int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
            s.disk_reads = u.ru_majflt;
        }
#endif
        return s;
    }

    state start_;
};

#endif
