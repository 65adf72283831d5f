#include "trace/json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/atomic_file.h"
#include "base/check.h"
#include "plait/trace.h"
#include "trace/json_string.h"
#include "trace/pack.h"

namespace plait::trace {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

// Tracks start at 1, because readers take thread 0 of process 0 for an idle processor.
int track_of(const Record& record) {
  return static_cast<int>(record.thread) * kLanes + static_cast<int>(record.lane) + 1;
}

std::string track_name(int track) {
  const int thread = (track - 1) / kLanes;
  const std::string_view lane = name(static_cast<Lane>((track - 1) % kLanes));
  return thread == 0 ? std::string(lane) : base::sentence(lane, ' ', thread);
}

// 1234567 ns → 1234.567
std::string microseconds(base::Nanoseconds time) {
  const std::string rest = std::to_string(1000 + time % 1000);
  return base::sentence(time / 1000, '.', std::string_view(rest).substr(1));
}

// Sorts parents before their children. Children are recorded first, because they end first.
std::vector<const Record*> in_order(const RankRecords& all) {
  std::vector<const Record*> records(all.records.size());
  std::ranges::transform(all.records, records.begin(),
                         [](const Record& record) { return &record; });
  std::ranges::sort(records, [](const Record* a, const Record* b) {
    return std::tuple(a->begin, b->end, b) < std::tuple(b->begin, a->end, a);
  });
  return records;
}

class Writer {
 public:
  Writer(const std::string& path, base::Nanoseconds origin) : file_(path), origin_(origin) {}

  void begin(const std::vector<RankRecords>& ranks) {
    text_ = R"({"displayTimeUnit":"ns","otherData":{"writer":"plait","origin_ns":")";
    text_ += std::to_string(origin_) + R"(","dropped":{)";
    for_each_rank(ranks, &RankRecords::dropped);
    text_ += R"(},"clock_uncertainty_ns":{)";
    for_each_rank(ranks, &RankRecords::uncertainty);
    text_ += R"(}},"traceEvents":[)";
  }

  void rank(const RankRecords& all) {
    names(all);
    int flight = 0;
    for (const Record* record : in_order(all)) {
      open(all, *record);
      switch (record->kind) {
        case Kind::span:
          text_ += R"(,"ph":"X","dur":)" + microseconds(record->end - record->begin);
          args(record->args);
          break;
        case Kind::flight:
          flight_pair(all, *record, std::to_string(++flight));
          break;
        case Kind::mark:
          text_ += R"(,"ph":"i","s":"t")";
          args(record->args);
          break;
        case Kind::count:
          text_ += base::sentence(R"(,"ph":"C","args":{"value":)", record->args.bytes, "}}");
          break;
      }
      if (text_.size() > kFlushBytes) flush();
    }
  }

  void end() {
    text_ += "\n]}\n";
    flush();
    file_.commit();
  }

 private:
  void for_each_rank(const std::vector<RankRecords>& ranks, std::int64_t RankRecords::* number) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      text_ += base::sentence(i > 0 ? "," : "", '"', ranks[i].rank, "\":", ranks[i].*number);
  }

  void next() { text_ += std::exchange(first_, false) ? "\n" : ",\n"; }

  void names(const RankRecords& all) {
    const std::string pid = base::sentence(R"("pid":)", all.rank);
    metadata(pid, "process_name", base::sentence(R"("name":"rank )", all.rank, '"'));
    metadata(pid, "process_sort_index", base::sentence(R"("sort_index":)", all.rank));
    if (all.dropped > 0) {
      metadata(pid, "process_labels",
               base::sentence(R"("labels":")", all.dropped, R"( older records dropped")"));
    }
    std::set<int> tracks;
    for (const Record& record : all.records) tracks.insert(track_of(record));
    for (const int track : tracks) {
      const std::string place = base::sentence(pid, R"(,"tid":)", track);
      metadata(place, "thread_name", base::sentence(R"("name":")", track_name(track), '"'));
      metadata(place, "thread_sort_index", base::sentence(R"("sort_index":)", track));
    }
  }

  void metadata(const std::string& place, const char* what, const std::string& args) {
    next();
    text_ +=
        base::sentence(R"({"ph":"M",)", place, R"(,"name":")", what, R"(","args":{)", args, "}}");
  }

  void open(const RankRecords& all, const Record& record, bool at_end = false) {
    next();
    text_ += R"({"name":)";
    append_json_string(text_, all.labels[record.label]);
    text_ += R"(,"cat":")";
    text_ += name(record.lane);
    text_ += R"(","pid":)" + std::to_string(all.rank);
    text_ += R"(,"tid":)" + std::to_string(track_of(record));
    text_ += R"(,"ts":)" + microseconds((at_end ? record.end : record.begin) - origin_);
  }

  void flight_pair(const RankRecords& all, const Record& record, const std::string& id) {
    text_ += R"(,"ph":"b","id2":{"local":")" + id + "\"}";
    args(record.args);
    open(all, record, /*at_end=*/true);
    text_ += R"(,"ph":"e","id2":{"local":")" + id + "\"}}";
  }

  void args(const SpanArgs& args) {
    const std::array<std::pair<const char*, std::int64_t>, 4> known = {
        {{"bytes", args.bytes}, {"flops", args.flops}, {"peer", args.peer}, {"chunk", args.chunk}}};
    std::string list;
    for (const auto& [key, value] : known) {
      if (value >= 0) list += base::sentence(list.empty() ? "" : ",", '"', key, "\":", value);
    }
    text_ += list.empty() ? "}" : R"(,"args":{)" + list + "}}";
  }

  void flush() {
    file_.append(text_);
    text_.clear();
  }

  base::AtomicFile file_;
  base::Nanoseconds origin_;
  std::string text_;
  bool first_ = true;
};

base::Nanoseconds earliest(const std::vector<RankRecords>& ranks) {
  base::Nanoseconds origin = std::numeric_limits<base::Nanoseconds>::max();
  for (const RankRecords& all : ranks) {
    for (const Record& record : all.records) origin = std::min(origin, record.begin);
  }
  return origin == std::numeric_limits<base::Nanoseconds>::max() ? 0 : origin;
}

}  // namespace

void write_json(const std::string& path, const std::vector<RankRecords>& ranks) {
  Writer writer(path, earliest(ranks));
  writer.begin(ranks);
  for (const RankRecords& all : ranks) writer.rank(all);
  writer.end();
}

}  // namespace plait::trace

namespace plait {

void write_json(const std::string& path, std::span<const std::vector<std::byte>> packs) {
  std::vector<trace::RankRecords> ranks;
  ranks.reserve(packs.size());
  for (const auto& bytes : packs) ranks.push_back(trace::unpack(bytes));
  std::ranges::sort(ranks, {}, &trace::RankRecords::rank);
  const auto twin = std::ranges::adjacent_find(ranks, {}, &trace::RankRecords::rank);
  PLAIT_CHECK(twin == ranks.end(), "trace: two of the packs are of rank ", twin->rank);
  trace::write_json(path, ranks);
}

}  // namespace plait
