// Measures plait's operators, and oneDNN's product with MPI's collective, in the same processes, in
// turns.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/processor.h"
#include "base/round_up.h"
#include "cli/bench/op_options.h"
#include "cli/table.h"
#include "comm/session/gather.h"
#include "measure/collective_race.h"
#include "measure/op_setup.h"
#include "mpi_library.h"
#include "rival.h"
#include "tensor/compare.h"
#include "tensor/tolerance.h"
#include "tune/op_case.h"
#include "verify/operands.h"

namespace plait::bench {
namespace {

constexpr const char* kUsage =
    "usage: mpirun -np 2 --bind-to core plait_bench_overlap_mpi OPERATOR --m M --n N --k K\n\n"
    "Measures OPERATOR (matmul-all-reduce, matmul-reduce-scatter or all-gather-matmul), and\n"
    "oneDNN's packed product with MPI's collective, in turns in the same processes. Takes the\n"
    "options of plait bench OPERATOR; the weight is packed, in x's dtype; plait's transport is\n"
    "shm unless --transport names another.\n";

double longest_row(const ConstTensorView& rows) {
  double most = 0;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    double squares = 0;
    for (std::int64_t col = 0; col < rows.cols; ++col) {
      const double one = verify::element(rows, row, col);
      squares += one * one;
    }
    most = std::max(most, squares);
  }
  return std::sqrt(most);
}

// The tolerance of an f32 sum, for any order of its terms. Σ|a||b| is at most |a|·|b|, with the
// longest row of X and the longest row of the weight. Collective.
double allowed_of_sums(const cli::OpBenchOptions& options, std::int64_t k, const ConstTensorView& x,
                       const ConstTensorView& weight, Communicator& comm) {
  const std::array<float, 2> mine = {static_cast<float>(longest_row(x)),
                                     static_cast<float>(longest_row(weight))};
  const std::vector<std::array<float, 2>> all = comm::gather_values(mine, comm);
  const bool sums =
      // otherwise the X of each rank is multiplied by this rank's weight
      sums_over_ranks(options.op);
  double magnitude = 0;
  for (const auto& [of_x, of_weight] : all) {
    magnitude =
        sums ? magnitude + double{of_x} * of_weight : std::max(magnitude, double{of_x} * mine[1]);
  }
  const std::int64_t shares = sums ? comm.world() : 1;
  return tensor::tolerance(
      {.terms = base::ceil_div(k, shares), .world = comm.world(), .wire = options.wire}, magnitude);
}

// The tolerance for the difference of two results that each have this error before they are rounded
// to their dtype. Rounding moves y by at most u/(1 - u) times the rounded value.
tensor::Allowed allowed_between(const ConstTensorView& a, const ConstTensorView& b, double sums) {
  const double u = unit_roundoff(a.dtype);
  const double always = 2 * (sums + tensor::smallest_roundoff(a.dtype));
  return [=](std::int64_t row, std::int64_t col) {
    return always +
           u / (1 - u) *
               (std::abs(verify::element(a, row, col)) + std::abs(verify::element(b, row, col)));
  };
}

struct Result {
  measure::OpSize size;
  std::vector<measure::Times> plans;
  std::optional<measure::Times> rival;  // empty: the rival has no such product

  std::optional<double> over_rival(std::size_t plan) const {
    if (!rival) return std::nullopt;
    return rival->median / plans[plan].median;
  }
};

Result measure(const cli::OpBenchOptions& options, const measure::OpSize& size,
               Communicator& comm) {
  const tune::OpCase one(measure::problem_of(options, size), comm);
  measure::CollectiveRace race(comm, options.effort);
  std::vector<std::unique_ptr<tune::OpCase::Runner>> runners;
  runners.reserve(options.plans.size());
  for (const Plan& plan : options.plans) runners.push_back(one.runner(plan, comm));
  for (const auto& runner : runners) race.add([&runner] { runner->run(); });
  if (!refusal_of_rival(options.op, options.x).empty())
    return {.size = size, .plans = race.run(), .rival = std::nullopt};

  const ConstTensorView ours = one.out();
  const Buffer place = Buffer::for_tensor(ours.dtype, ours.rows, ours.cols, {.huge_pages = true});
  const TensorView theirs = place.view(ours.dtype, ours.rows, ours.cols);
  const Buffer weight = one.random_weight(options.x);
  const ConstTensorView rows = weight.view(options.x, one.n(), one.k());
  const auto rival = make_rival(
      {.op = options.op, .m = size.m, .x = one.x(), .weight = rows, .out = theirs}, comm);
  race.add(rival);
  const std::vector<measure::Times> times = race.run();
  const double sums = allowed_of_sums(options, size.k, one.x(), rows, comm);
  const auto found = tensor::compare(theirs, ours, allowed_between(theirs, ours, sums));
  PLAIT_CHECK(found.ok(), rival_name(), " and plait differ: ", found.describe());
  return {.size = size, .plans = {times.begin(), times.end() - 1}, .rival = times.back()};
}

std::string show(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "";
}

nlohmann::ordered_json json_of(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::string show_text(const cli::OpBenchOptions& options, const std::vector<Result>& results) {
  std::vector<std::string> head = {"m x n x k", "rival, ms"};
  for (const Plan& plan : options.plans)
    head.insert(head.end(), {name(plan) + ", ms", "faster by"});
  cli::Table table(head, /*left=*/1);
  for (const Result& one : results) {
    std::vector<std::string> row = {
        fmt::format("{} x {} x {}", one.size.m, one.size.n, one.size.k),
        one.rival ? fmt::format("{:.3f}", one.rival->median * 1e-6) : "none"};
    for (std::size_t i = 0; i < one.plans.size(); ++i) {
      row.insert(row.end(),
                 {fmt::format("{:.3f}", one.plans[i].median * 1e-6), show(one.over_rival(i))});
    }
    table.add(row);
  }
  const std::string refusal = refusal_of_rival(options.op, options.x);
  return fmt::format("{}, {}; the rival is {}{}\n\n{}", name(options.op), name(options.x),
                     rival_name(), refusal.empty() ? "" : "; " + refusal, table.text());
}

nlohmann::ordered_json show_json(const cli::OpBenchOptions& options,
                                 const std::vector<Result>& results, const Communicator& comm) {
  using Json = nlohmann::ordered_json;
  const std::string refusal = refusal_of_rival(options.op, options.x);
  Json list = Json::array();
  for (const Result& one : results) {
    Json plans = Json::array();
    for (std::size_t i = 0; i < one.plans.size(); ++i) {
      plans.push_back({{"plan", name(options.plans[i])},
                       {"median_ms", one.plans[i].median * 1e-6},
                       {"over_rival", json_of(one.over_rival(i))}});
    }
    list.push_back({{"op", name(options.op)},
                    {"m", one.size.m},
                    {"n", one.size.n},
                    {"k", one.size.k},
                    {"ranks", comm.world()},
                    {"dtype", name(options.x)},
                    {"transport", comm.transport()},
                    {"rival", rival_name()},
                    {"rival_ms", one.rival ? Json(one.rival->median * 1e-6) : Json()},
                    {"rival_refusal", refusal.empty() ? Json() : Json(refusal)},
                    {"plans", std::move(plans)},
                    {"machine", base::read_processor().model}});
  }
  return list;
}

void be_rank(const cli::OpBenchOptions& options) {
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  Communicator comm =
      Communicator::connect({.transport = options.transport.empty() ? "shm" : options.transport});
  PLAIT_CHECK(comm.world() == world, "MPI has ", world, " ranks but plait has ", comm.world());
  for (const measure::OpSize& size : options.sizes) {
    PlanKey key = measure::problem_of(options, size).key;
    key.world = world;
    measure::check_memory(key);
  }
  std::vector<Result> results;
  results.reserve(options.sizes.size());
  for (const measure::OpSize& size : options.sizes) results.push_back(measure(options, size, comm));
  if (comm.rank() != 0) return;
  if (!options.files.silences()) std::cout << show_text(options, results);
  options.files.write_json(show_json(options, results, comm));
}

int run(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto op = words.empty() ? std::nullopt : parse_operator(words.front());
  if (!op) {
    std::cerr << kUsage;
    return 2;
  }
  std::optional<cli::OpBenchOptions> options;
  try {
    options = cli::read_op_options(cli::OpVerb::bench, {.op = *op}, std::span(words).subspan(1));
    if (!options) return 0;
    check_has_rival(*op);
    PLAIT_CHECK(options->weight == name(options->x), "--weight ", options->weight,
                ": oneDNN gets a packed weight of x's dtype; give that or nothing");
    PLAIT_CHECK(options->layout == WeightLayout::out_in,
                "--layout: oneDNN gets out_in; give that or nothing");
    PLAIT_CHECK(!options->link, "--link: MPI cannot emulate a link");
  } catch (const std::exception& error) {
    std::cerr << "plait_bench_overlap_mpi: " << error.what() << '\n';
    return 2;
  }
  const Mpi mpi(&argc, &argv);
  try {
    be_rank(*options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "plait_bench_overlap_mpi: " << error.what() << std::endl;
    // The other ranks may be inside MPI, where only MPI can end them.
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}

}  // namespace
}  // namespace plait::bench

int main(int argc, char** argv) { return plait::bench::run(argc, argv); }
