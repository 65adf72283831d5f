#include "cli/info/why_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/env.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/table.h"
#include "cli/values.h"
#include "comm/emulated/link_clock.h"
#include "comm/session/transports.h"
#include "launch/cgroup.h"
#include "launch/cpu_binding.h"
#include "launch/topology.h"
#include "ops/shapes.h"
#include "plait/ops.h"
#include "plait/quantized.h"
#include "plait/settings.h"
#include "plan/families.h"
#include "plan/machine.h"
#include "plan/settings/load.h"
#include "plan/weight_kind.h"
#include "tune/files.h"

namespace plait::cli {
namespace {

constexpr std::string_view kOp = "op=";

// "matmul-all-reduce" is an operator; anything after op= is taken for one.
bool is_operator(std::string_view word) {
  const bool says_so = word.starts_with(kOp);
  const std::string_view spelling = word.substr(says_so ? kOp.size() : 0);
  const auto op = parse_operator(spelling);
  if (plan::find_family_call(spelling) != nullptr) return true;
  return op ? traits_of(*op).communicates() : says_so;
}

// The threads of ranks that `plait run` starts on one host.
int threads_of(int world) {
  constexpr std::int64_t kMost = 1 << 16;  // OpenMP refuses more
  if (const auto set = base::env_int("OMP_NUM_THREADS", 1, kMost))
    return std::min(static_cast<int>(*set), base::kMostThreads);
  const std::vector<launch::Core> cores = launch::read_topology().cores;
  const auto limit = launch::read_cgroup_limits().cpus;
  const launch::Bind bind = launch::default_bind(static_cast<int>(cores.size()), world, limit);
  return launch::bindings_for(bind, world, cores, limit).front().threads;
}

bool has_model(const PlanKey& key) { return key.family == Family::operators; }

// Fills in what the problem leaves out, as a program that runs here would.
PlanKey completed(const std::string& problem, const Settings& settings) {
  PlanKey key = parse_plan_key(problem);
  if (has_model(key) && problem.find("wire=") == std::string::npos)
    key.wire = ops::wire_of(key.op, key.x, settings.wire, key.hosts);
  if (key.backend.empty()) key.backend = settings.backend;
  if (key.threads == 0) key.threads = settings.threads;
  PLAIT_CHECK(is_packed_kind(key.weight) || plan::plain_dtype(key.weight), "w=", key.weight,
              " is not a weight; give, for example, bf16, bf16:plain, s8:channel or s8:group=128");
  if (const auto scheme = parse_quant_scheme(key.weight)) key.weight = name(*scheme);
  key.backend = read_backend("backend", key.backend);
  if (key.transport.empty())
    key.transport = base::env("PLAIT_TRANSPORT").value_or(key.hosts > 1 ? "tcp" : "shm");
  comm::check_transport(key.transport);
  if (key.threads == 0) key.threads = threads_of(key.world);
  if (!key.link) key.link = comm::link_from_environment();
  return key;
}

const plan::Prediction& prediction_of(const PlanChoice& choice, const Plan& plan) {
  return std::find_if(choice.candidates.begin(), choice.candidates.end(),
                      [&](const plan::Candidate& one) { return one.plan == plan; })
      ->prediction;
}

// The setting that determines the plan of a problem.
std::string setting_of(const PlanKey& key, const plan::Loaded& loaded) {
  const bool custom = loaded.settings.customized.contains(shape_of(key));
  const std::string_view setting = custom ? "customized" : "plan";
  return fmt::format("{} ({})", setting, loaded.origin(setting));
}

// The model's choice compared with serial; if it chose serial, the best of the others.
std::string show_model(const PlanChoice& choice) {
  if (!has_model(choice.key)) {
    return fmt::format(
        "It is \"{}\", the default: the cost model knows nothing of such calls. plait tune "
        "measures plans.\n",
        name(choice.chosen));
  }
  if (!choice.profile.knows_link(choice.key)) {
    return fmt::format(
        "It is \"{}\", the default between hosts: their network is not known here. A program "
        "measures it,\nand tries plans in its first calls. Say link=1gbit,50us to predict plans "
        "for a network.\n",
        name(choice.chosen));
  }
  const Plan serial_plan = {.schedule = Schedule::serial};
  const plan::Prediction& serial = prediction_of(choice, serial_plan);
  const bool is_serial = choice.chosen == serial_plan;
  const Plan& other = is_serial ? choice.candidates.front().plan : choice.chosen;
  if (other == serial_plan) return "It is \"serial\", by the cost model; no plan is faster.\n";
  const plan::Prediction& one = prediction_of(choice, other);
  const plan::CostModel model(choice.profile);
  const double doubt = model.doubt(choice.key, one, serial);
  const std::string error = fmt::format(
      "The model's error is up to {:.1f} % of serial's time: {:.0f} % of the time of copies, sums "
      "and\nwaits in both plans, or {:.0f} % of serial's time if that is more.\n",
      100 * doubt / serial.total, 100 * choice.profile.uncertainty_of(choice.key),
      100 * plan::kLeastGain);
  const double gain = 100 * (1 - one.total / serial.total);
  if (is_serial) {
    return fmt::format(
        "It is \"serial\", by the cost model; \"{}\" would gain {:.1f} % of serial's time.\n{}",
        name(other), gain, error);
  }
  return fmt::format(
      "It is \"{}\", by the cost model: {:.2f} times as fast as serial, a gain of {:.1f} % of "
      "serial's time.\n{}",
      name(other), serial.total / one.total, gain, error);
}

// Says in a sentence where the plan comes from.
std::string show_source(const PlanChoice& choice) {
  if (choice.set) {
    const std::string unused = choice.measured
                                   ? fmt::format("The measured plan, \"{}\", is not used ({}).\n",
                                                 name(choice.measured->plan), choice.cache_path)
                                   : "";
    return fmt::format("It is \"{}\", set by {}.\n{}", name(choice.chosen), choice.setting, unused);
  }
  if (!choice.refusal.empty()) {
    return fmt::format("automatic_plans() refuses: {}.\nWithout automatic plans it is \"{}\".\n",
                       choice.refusal, name(choice.chosen));
  }
  if (choice.measured) {
    return fmt::format("It is \"{}\", measured: {}; serial: {} ({}).\n", name(choice.chosen),
                       base::show_duration(choice.measured->nanoseconds),
                       base::show_duration(choice.measured->serial), choice.cache_path);
  }
  if (choice.key.world == 1) return "It is \"serial\": one rank does not communicate.\n";
  return show_model(choice) +
         (choice.left_alone.empty()
              ? fmt::format("It has no measured plan in {}.\n",
                            choice.cache_path.empty() ? "any cache" : choice.cache_path)
              : fmt::format("Plans are neither read nor stored: {}.\n", choice.left_alone)) +
         fmt::format("This applies to automatic_plans(); without automatic plans it is \"{}\".\n",
                     name(default_plan(choice.key.op)));
}

std::string show_profile_source(const PlanChoice& choice) {
  if (choice.profile.is_measured())
    return fmt::format(
        "The machine's profile was measured with {} of {}{}.\n",
        base::show_count(choice.profile.ranks, "rank"),
        base::show_count(choice.profile.threads, "thread"),
        choice.profile.hosts > 1 ? fmt::format(" on {} hosts", choice.profile.hosts) : "");
  const std::string text = "The profile is built in, for no particular machine";
  if (!choice.refusal.empty() || !choice.left_alone.empty())
    return text + "; this machine's is not read either.\n";
  return text + "; plait tune --profile measures this machine.\n";
}

// Says in which tree the sums are added if ranks have equal shares of k.
SumTree sum_tree_of(const PlanKey& key) {
  if (!has_model(key)) return {};  // no sum passes from rank to rank
  const bool shares_k = traits_of(key.op).shares_k;
  if (shares_k && key.k % key.world != 0) return {"the ranks' shares of k differ"};
  WeightKind kind = {.is_packed = true};
  kind.scheme = parse_quant_scheme(key.weight);
  return sum_tree(OpDesc{.op = key.op,
                         .m = key.m,
                         .n = key.n,
                         .k = shares_k ? key.k / key.world : key.k,
                         .x = key.x,
                         .weight = kind,
                         .out = key.out},
                  key.world, key.wire);
}

std::string show_tree(const PlanKey& key) {
  const SumTree tree = sum_tree_of(key);
  if (tree) return "Its sums have the same bits as on one rank.\n";
  return fmt::format("Its sums have other bits on another number of ranks: {}.\n", tree.refusal);
}

// Shows the fastest plans, the chosen one, and those that are useful for comparison.
bool is_shown(const PlanChoice& choice, std::size_t place) {
  constexpr std::size_t kFastest = 10;
  const Plan& plan = choice.candidates[place].plan;
  return place < kFastest || plan == choice.chosen || plan == Plan{.schedule = Schedule::serial} ||
         plan == default_plan(choice.key.op);
}

}  // namespace

bool is_plan_problem(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& some) {
    const auto each = base::split(some, ' ');
    return std::any_of(each.begin(), each.end(), is_operator);
  });
}

Json explain_one_plan(const std::vector<std::string>& words) {
  constexpr std::array kHeads = {"matmul_top", "matmul_cross_entropy", "matmul_log_probs"};
  for (const std::string& some : words) {
    const std::string first(base::split(some, ' ').front());
    for (const std::string_view op : kHeads)
      if (first == op || first == word_of(op) || first == base::sentence(kOp, op) ||
          first == base::sentence(kOp, word_of(op)))
        return {{"op", op}, {"chosen", name(Schedule::serial)}, {"source", "only"}};
  }
  return {};
}

std::string show_one_plan(const Json& explained) {
  return fmt::format(
      "{} has one plan: the product, then one message of a few bytes for each row.\n"
      "Its results have the same bits as on one rank.\n",
      explained["op"].get<std::string>());
}

namespace {

// Reads the cache and the profile as automatic_plans() does, or the reason why it reads none.
void take_files(PlanChoice& choice) {
  const tune::Files files = tune::read_files({}, plan::machine_fingerprint());
  choice.refusal = files.refusal;
  choice.left_alone = files.left_alone;
  if (files.cache) {
    const plan::PlanCache cache = plan::PlanCache::parse(*files.cache);
    const auto found = cache.entries().find(name(choice.key));
    if (found != cache.entries().end()) choice.measured = found->second;
  }
  choice.profile = files.profile ? plan::parse_profile(*files.profile) : plan::built_in_profile();
}

Plan chosen_of(const PlanChoice& choice, const plan::CostModel& model) {
  if (choice.set) return *choice.set;
  if (!choice.refusal.empty()) return default_plan(choice.key.op);
  return choice.measured ? choice.measured->plan : model.choose(choice.key);
}

}  // namespace

PlanChoice choose_plan(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& some : words) {
    for (const std::string_view word : base::split(some, ' ')) {
      const bool bare = is_operator(word) && !word.starts_with(kOp);
      text += base::sentence(text.empty() ? "" : " ", bare ? kOp : "", word);
    }
  }
  const plan::Loaded loaded = plan::load(plan::process_environment());
  PlanChoice choice = {.key = completed(text, loaded.settings)};
  choice.set = SettingsPlans(loaded.settings).find(choice.key);
  if (choice.set) choice.setting = setting_of(choice.key, loaded);
  choice.cache_path = loaded.settings.plan_cache;
  take_files(choice);
  const plan::CostModel model(choice.profile);
  choice.chosen = chosen_of(choice, model);
  if (!has_model(choice.key)) return choice;  // nothing is predicted
  choice.candidates = model.rank(choice.key);
  const bool is_there =
      std::any_of(choice.candidates.begin(), choice.candidates.end(),
                  [&](const plan::Candidate& one) { return one.plan == choice.chosen; });
  if (!is_there) {
    const plan::Candidate chosen = {.plan = choice.chosen,
                                    .prediction = model.predict(choice.key, choice.chosen)};
    const auto place = std::upper_bound(choice.candidates.begin(), choice.candidates.end(), chosen,
                                        [](const plan::Candidate& a, const plan::Candidate& b) {
                                          return a.prediction.total < b.prediction.total;
                                        });
    choice.candidates.insert(place, chosen);
  }
  return choice;
}

std::string show_text(const PlanChoice& choice) {
  std::string text = fmt::format("The plan for {}\n\n", name(choice.key));
  std::size_t left_out = 0;
  Table table({"plan", "predicted", "product", "copies and sums", "waits", "link busy", "exposed"},
              /*left=*/1);
  for (std::size_t place = 0; place < choice.candidates.size(); ++place) {
    if (!is_shown(choice, place)) {
      ++left_out;
      continue;
    }
    const plan::Candidate& one = choice.candidates[place];
    const plan::Prediction& parts = one.prediction;
    table.add({name(one.plan) + (one.plan == choice.chosen ? " *" : ""), show_time(parts.total),
               show_time(parts.product), show_time(parts.work), show_time(parts.waited),
               show_time(parts.transfer), show_time(parts.exposed())});
  }
  if (!choice.candidates.empty()) text += table.text();
  if (left_out > 0)
    text += fmt::format("{} more plans are not shown; --json lists all.\n", left_out);
  if (!choice.candidates.empty()) text += '\n';
  return text + show_source(choice) + show_tree(choice.key) + show_profile_source(choice);
}

Json show_json(const PlanChoice& choice) {
  Json plans = Json::array();
  const plan::CostModel model(choice.profile);
  for (const plan::Candidate& one : choice.candidates) {
    const plan::Prediction& serial = prediction_of(choice, {.schedule = Schedule::serial});
    plans.push_back({{"plan", name(one.plan)},
                     {"predicted_ns", one.prediction.total},
                     {"product_ns", one.prediction.product},
                     {"work_ns", one.prediction.work},
                     {"waited_ns", one.prediction.waited},
                     {"link_busy_ns", one.prediction.transfer},
                     {"exposed_ns", one.prediction.exposed()},
                     {"gain_ns", serial.total - one.prediction.total},
                     {"doubt_ns", model.doubt(choice.key, one.prediction, serial)}});
  }
  return {{"problem", name(choice.key)},
          {"chosen", name(choice.chosen)},
          {"source", choice.set                ? "settings"
                     : !choice.refusal.empty() ? "default"
                     : choice.measured         ? "cache"
                     : has_model(choice.key)   ? "model"
                                               : "default"},
          {"setting", choice.set ? Json(choice.setting) : Json()},
          {"cache", choice.cache_path},
          {"as_on_one_rank", static_cast<bool>(sum_tree_of(choice.key))},
          {"sum_tree", sum_tree_of(choice.key) ? Json() : Json(sum_tree_of(choice.key).refusal)},
          {"refusal", or_null(choice.refusal)},
          {"left_alone", or_null(choice.left_alone)},
          {"measured_ns", choice.measured ? Json(choice.measured->nanoseconds) : Json()},
          {"measured_serial_ns", choice.measured ? Json(choice.measured->serial) : Json()},
          {"profile", choice.profile.is_measured() ? "measured" : "built in"},
          {"uncertainty", choice.profile.uncertainty_of(choice.key)},
          {"plans", std::move(plans)}};
}

}  // namespace plait::cli
