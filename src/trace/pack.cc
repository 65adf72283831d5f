#include "trace/pack.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/fingerprint.h"

namespace plait::trace {
namespace {

// "plaittr1" in little-endian order. A host of the other byte order reads another number and
// refuses the pack. The digit is the version of the format.
constexpr std::uint64_t kMagic = 0x3172747469616c70;
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);

// A record as it is sent. It has no padding, which would contain stale memory.
struct PackedRecord {
  std::int64_t begin, end, bytes, flops;
  std::int32_t peer, chunk;
  std::uint32_t label;
  std::uint32_t place;  // kind, lane and thread
};
static_assert(std::has_unique_object_representations_v<PackedRecord>);

struct Header {
  std::uint64_t magic, dropped, records;
  std::uint32_t rank, labels;
};
static_assert(std::has_unique_object_representations_v<Header>);

// Detects damage, not malice. unpack() checks all values anyway.
std::uint64_t checksum(std::span<const std::byte> bytes) { return base::fingerprint(bytes); }

template <class T>
void put(std::vector<std::byte>& bytes, const T& value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

void require(bool good, const char* what) {
  PLAIT_CHECK(good, "trace: the pack is damaged (", what, ")");
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> rest) : rest_(rest) {}

  std::size_t left() const { return rest_.size(); }

  std::span<const std::byte> take(std::size_t size) {
    require(size <= rest_.size(), "it ends too early");
    const auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string text() {
    const auto bytes = take(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> rest_;
};

PackedRecord to_packed(const Record& record) {
  return {.begin = record.begin,
          .end = record.end,
          .bytes = record.args.bytes,
          .flops = record.args.flops,
          .peer = record.args.peer,
          .chunk = record.args.chunk,
          .label = record.label,
          .place = static_cast<std::uint32_t>(record.kind) |
                   static_cast<std::uint32_t>(record.lane) << 4 | record.thread << 8};
}

Record to_record(const PackedRecord& packed, std::size_t labels) {
  const std::uint32_t kind = packed.place & 0xf;
  const std::uint32_t lane = packed.place >> 4 & 0xf;
  require(kind < kKinds, "a record of an unknown kind");
  require(lane < kLanes, "a record in an unknown lane");
  require(packed.label < labels, "a record without a label");
  require(packed.begin >= -kFarthest && packed.begin <= packed.end && packed.end <= kFarthest,
          "a record that ends before it begins");
  return {.kind = static_cast<Kind>(kind),
          .lane = static_cast<Lane>(lane),
          .thread = packed.place >> 8,
          .label = packed.label,
          .begin = packed.begin,
          .end = packed.end,
          .args = {.bytes = packed.bytes,
                   .flops = packed.flops,
                   .peer = packed.peer,
                   .chunk = packed.chunk}};
}

}  // namespace

std::vector<std::byte> pack(const RankRecords& all) {
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(Header) + all.records.size() * sizeof(PackedRecord) + kChecksumBytes);
  put(bytes, Header{.magic = kMagic,
                    .dropped = static_cast<std::uint64_t>(all.dropped),
                    .records = all.records.size(),
                    .rank = static_cast<std::uint32_t>(all.rank),
                    .labels = static_cast<std::uint32_t>(all.labels.size())});
  for (const std::string& label : all.labels) {
    put(bytes, static_cast<std::uint32_t>(label.size()));
    const auto text = std::as_bytes(std::span(label));
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  for (const Record& record : all.records) put(bytes, to_packed(record));
  bytes.resize(bytes.size() + kChecksumBytes);
  seal(bytes);
  return bytes;
}

RankRecords unpack(std::span<const std::byte> bytes) {
  require(bytes.size() >= sizeof(Header) + kChecksumBytes, "it ends too early");
  Reader sum(bytes.last(kChecksumBytes));
  Reader reader(bytes.first(bytes.size() - kChecksumBytes));
  const auto header = reader.get<Header>();
  PLAIT_CHECK(header.magic == kMagic,
              "trace: these bytes are not a pack, or another version of plait made them");
  require(sum.get<std::uint64_t>() == checksum(bytes.first(bytes.size() - kChecksumBytes)),
          "its checksum is wrong");
  require(header.rank <= std::numeric_limits<int>::max(), "a negative rank");
  require(header.dropped <= std::numeric_limits<std::int64_t>::max(), "a negative count");

  RankRecords all;
  all.rank = static_cast<int>(header.rank);
  all.dropped = static_cast<std::int64_t>(header.dropped);
  for (std::uint32_t i = 0; i < header.labels; ++i) all.labels.push_back(reader.text());
  require(header.records == reader.left() / sizeof(PackedRecord) &&
              reader.left() % sizeof(PackedRecord) == 0,
          "a wrong number of records");
  all.records.reserve(header.records);
  for (std::uint64_t i = 0; i < header.records; ++i) {
    all.records.push_back(to_record(reader.get<PackedRecord>(), all.labels.size()));
  }
  return all;
}

void seal(std::span<std::byte> bytes) {
  const std::uint64_t sum = checksum(bytes.first(bytes.size() - kChecksumBytes));
  std::memcpy(bytes.last(kChecksumBytes).data(), &sum, sizeof sum);
}

}  // namespace plait::trace
