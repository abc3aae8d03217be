// The thread that computes.
#ifndef TANDEM_RUNNER_H
#define TANDEM_RUNNER_H

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

// runner runs one task at a time on a thread of its own and writes one byte to a
// file descriptor whenever one has ended.
class runner {
public:
    explicit runner(int done) : done_(done), thread_([this] { loop(); }) {}
    ~runner();

    // start must not be called again before the byte was read.
    void start(std::function<void()> task);

private:
    int done_;
    std::mutex mu_;
    std::condition_variable changed_;
    std::function<void()> task_; // guarded by mu_
    bool stop_ = false;          // guarded by mu_
    std::thread thread_;         // last: it uses the others

    void loop();
    runner(const runner &) = delete;
    runner & operator=(const runner &) = delete;
};

#endif
