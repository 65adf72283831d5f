#include "launch/rank_group.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "launch/environment.h"
#include "launch/processes.h"
#include "launch/spawn.h"

namespace plait::launch {

RankGroup::RankGroup(const Launch& launch, const Inherited& inherited)
    : launch_(launch), inherited_(inherited), job_(launch.part.job), guard_(job_) {}

// Processes are left only if a rank could not be started, or a system call failed.
RankGroup::~RankGroup() {
  const auto left = living();
  if (left.empty()) return;
  kill_all();
  for (const int rank : left) {
    while (waitpid(ranks_[rank].pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

// The agent passes the output on as it comes, so that it needs no pipes of ours.
std::string RankGroup::start_agent() {
  const std::size_t number = ranks_.size();
  const base::Fd input = inputs_.add(launch_.part.secret);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  const Child child = {.path = launch_.agents[number][0],
                       .words = launch_.agents[number],
                       .environment = std::move(variables),
                       .cpus = {},
                       .in = input.get()};
  const pid_t pid = spawn(child, inherited_);
  ranks_.push_back({.pid = pid, .own_group = true, .alive = true});
  guard_.watch(pid);
  return fmt::format("process {} calls host {}", pid, launch_.hosts[number].host);
}

std::string RankGroup::start_next(Output* output) {
  if (!launch_.hosts.empty()) return start_agent();
  const int local = static_cast<int>(ranks_.size());
  const int rank = launch_.part.first + local;
  const CpuBinding& binding = launch_.bindings[local];
  const Place place = {.rank = rank, .world = launch_.part.world, .job = job_};
  const LocalPlace local_place = {.rank = local,
                                  .world = static_cast<int>(launch_.bindings.size()),
                                  .rendezvous = launch_.part.rendezvous,
                                  .hosts = launch_.part.hosts,
                                  .secret = launch_.part.secret};
  // On a terminal, rank 0 stays in our process group, which may read from the terminal, so that
  // prompts and debuggers work there. Therefore the terminal sends Ctrl-C to it directly.
  const bool at_terminal = rank == 0 && !launch_.has_caller && isatty(STDIN_FILENO) == 1;
  Child child = {.path = launch_.path,
                 .words = launch_.words,
                 .environment = environment_of(place, local_place, binding.threads, environ),
                 .cpus = binding.cpus,
                 .own_group = !at_terminal};
  base::Fd nothing;
  if (rank > 0 || launch_.has_caller) {
    nothing = base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing) base::fail_errno("cannot open /dev/null");
    child.in = nothing.get();
  }
  std::array<base::Fd, 2> pipes;
  if (output != nullptr) {
    pipes = output->connect(rank);
    child.out = pipes[0].get();
    child.err = pipes[1].get();
  }
  const pid_t pid = spawn(child, inherited_);
  ranks_.push_back({.pid = pid, .own_group = child.own_group, .alive = true});
  if (child.own_group) guard_.watch(pid);
  return fmt::format("rank {} is process {}, {}, OMP_NUM_THREADS={}", rank, pid,
                     binding.cpus.empty() ? "not bound" : "on cpus " + show_cpus(binding.cpus),
                     base::env("OMP_NUM_THREADS").value_or(std::to_string(binding.threads)));
}

std::optional<int> RankGroup::bury(pid_t pid) {
  if (pid == guard_.pid()) guard_.bury();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].alive || ranks_[rank].pid != pid) continue;
    ranks_[rank].alive = false;
    return static_cast<int>(rank);
  }
  return std::nullopt;
}

std::vector<int> RankGroup::living() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].alive) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::vector<Process> RankGroup::processes() const {
  auto family = processes_below(getpid());
  std::erase_if(family, [&](const Process& process) { return process.pid == guard_.pid(); });
  return family;
}

// These are not reached through a living rank's group: processes in our own group, processes that
// an ended rank left in its group, and orphans with a group of their own.
bool RankGroup::is_signalled_singly(pid_t group, pid_t parent) const {
  const auto rank =
      std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& one) { return one.pid == group; });
  if (rank != ranks_.end() && rank->own_group) return !rank->alive;
  return group == getpgrp() || parent == getpid();
}

void RankGroup::pass_on(int signal, bool from_terminal) const {
  // An agent that gets a signal itself may end without the last output of its ranks.
  if (!launch_.hosts.empty()) return inputs_.tell(signal);
  const auto family = processes();
  for (const Rank& rank : ranks_) {
    if (rank.alive && rank.own_group) kill(-rank.pid, signal);
  }
  for (const Process& process : family) {
    if (from_terminal && process.group == getpgrp()) continue;
    if (is_signalled_singly(process.group, process.parent)) signal_process(process, signal);
  }
}

void RankGroup::kill_all() const {
  for (const Rank& rank : ranks_) {
    if (rank.alive) kill(rank.own_group ? -rank.pid : rank.pid, SIGKILL);
  }
  for (const Process& process : processes()) signal_process(process, SIGKILL);
}

}  // namespace plait::launch
