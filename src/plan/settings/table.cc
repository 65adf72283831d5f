#include "plan/settings/table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/parallel.h"
#include "plait/error.h"

namespace plait::plan {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kNone = "none";

std::string show_flag(bool flag) { return flag ? "true" : "false"; }

std::string show_shape(const ProductShape& shape) {
  return base::sentence('[', shape.m, ',', shape.k, ',', shape.n, ']');
}

// "[16384, 5120, 1920]", with or without blanks
ProductShape read_shape(const RawSetting& row) {
  std::string text = row.name();
  std::erase(text, ' ');
  std::array<std::int64_t, 3> sizes{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (at == end || *at != (i == 0 ? '[' : ',')) row.refuse(": a shape must be written [m, k, n]");
    const auto [stop, failure] = std::from_chars(at + 1, end, sizes[i]);
    if (failure != std::errc() || sizes[i] < 1)
      row.refuse(": a shape must be written [m, k, n], with sizes of at least 1");
    at = stop;
  }
  if (std::string_view(at, static_cast<std::size_t>(end - at)) != "]")
    row.refuse(": a shape must be written [m, k, n]");
  return {.m = sizes[0], .k = sizes[1], .n = sizes[2]};
}

void read_customized(const RawSetting& raw, Settings& settings) {
  settings.customized.clear();
  if (raw.is(kNone)) return;
  for (const RawSetting& row : raw.entries()) {
    const bool is_first = settings.customized.emplace(read_shape(row), read_plan(row)).second;
    if (!is_first) row.refuse(": this shape has a plan already");
  }
}

std::string show_customized(const Settings& settings) {
  std::string text;
  for (const auto& [shape, plan] : settings.customized) {
    text += base::sentence(text.empty() ? "" : "; ", show_shape(shape), '=', name(plan));
  }
  return text.empty() ? std::string(kNone) : text;
}

Dtype read_wire(const RawSetting& raw) {
  if (raw.is(kAuto)) return kNoDtype;
  const auto dtype = parse_dtype(raw.text());
  if (!dtype) raw.refuse(" is none of auto, f32, bf16, f16, s8");
  return *dtype;
}

constexpr std::array<Setting, 10> kSettings = {{
    {"plan", "PLAIT_PLAN", "",
     [](const RawSetting& raw, Settings& settings) {
       settings.plan.reset();
       if (!raw.is(kAuto)) settings.plan = read_plan(raw);
     },
     [](const Settings& settings) {
       return settings.plan ? name(*settings.plan) : std::string(kAuto);
     }},
    {"customized", "PLAIT_CUSTOMIZED", "customized_coc", read_customized, show_customized},
    {"column_backward", "PLAIT_COLUMN_BACKWARD", "enable_coc_in_column_backward",
     [](const RawSetting& raw, Settings& settings) { settings.column_backward = raw.flag(); },
     [](const Settings& settings) { return show_flag(settings.column_backward); }},
    {"recompute_all_gather", "PLAIT_RECOMPUTE_ALL_GATHER", "",
     [](const RawSetting& raw, Settings& settings) { settings.recompute_all_gather = raw.flag(); },
     [](const Settings& settings) { return show_flag(settings.recompute_all_gather); }},
    {"aligned_packing", "PLAIT_ALIGNED_PACKING", "matmul_soc_friendly",
     [](const RawSetting& raw, Settings& settings) { settings.aligned_packing = raw.flag(); },
     [](const Settings& settings) { return show_flag(settings.aligned_packing); }},
    {"wire", "PLAIT_WIRE", "",
     [](const RawSetting& raw, Settings& settings) { settings.wire = read_wire(raw); },
     [](const Settings& settings) {
       return std::string(settings.wire == kNoDtype ? kAuto : name(settings.wire));
     }},
    {"threads", "PLAIT_THREADS", "",
     [](const RawSetting& raw, Settings& settings) {
       settings.threads = raw.is(kAuto) ? 0 : static_cast<int>(raw.whole(0, base::kMostThreads));
     },
     [](const Settings& settings) {
       return settings.threads == 0 ? std::string(kAuto) : std::to_string(settings.threads);
     }},
    {"backend", "PLAIT_BACKEND", "",
     [](const RawSetting& raw, Settings& settings) {
       settings.backend = raw.is(kAuto) ? "" : raw.text();
     },
     [](const Settings& settings) {
       return settings.backend.empty() ? std::string(kAuto) : settings.backend;
     }},
    {"plan_cache", "PLAIT_PLAN_CACHE", "",
     [](const RawSetting& raw, Settings& settings) {
       settings.plan_cache = raw.is(kNone) ? "" : raw.text();
     },
     [](const Settings& settings) {
       return settings.plan_cache.empty() ? std::string(kNone) : settings.plan_cache;
     }},
    {"tune_online", "PLAIT_TUNE_ONLINE", "",
     [](const RawSetting& raw, Settings& settings) {
       settings.tune_online.reset();
       if (!raw.is(kAuto)) settings.tune_online = raw.flag(" is none of auto, true, false");
     },
     [](const Settings& settings) {
       return settings.tune_online ? show_flag(*settings.tune_online) : std::string(kAuto);
     }},
}};

}  // namespace

std::span<const Setting> all_settings() { return kSettings; }

const Setting* find_setting(std::string_view name) {
  const auto* const found =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& setting) {
        return setting.name == name || (!name.empty() && setting.coc_name == name);
      });
  return found == kSettings.end() ? nullptr : found;
}

Plan read_plan(const RawSetting& raw) {
  if (raw.is_whole()) {
    const std::int64_t parts = raw.whole(INT64_MIN, INT64_MAX);
    if (parts == -1) return {.schedule = Schedule::fused};
    if (parts == 1) return {.schedule = Schedule::serial};
    if (parts < 1 || parts > kMostParts)
      raw.refuse(" is not 1 (serial), 2 to ", kMostParts, " (parts) or -1 (fused)");
    return {.schedule = Schedule::pipelined, .parts = static_cast<int>(parts)};
  }
  const std::string& text = raw.text();
  try {
    return parse_plan(text);
  } catch (const Error& error) {
    std::string_view reason = error.what();
    constexpr std::string_view kWho = "plan: ";  // the caller's sentence says it already
    if (reason.starts_with(kWho)) reason.remove_prefix(kWho.size());
    raw.refuse(": ", reason);
  }
}

}  // namespace plait::plan
