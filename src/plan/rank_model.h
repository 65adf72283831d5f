// One rank of a schedule on a simulated clock: it multiplies, polls its chunks now and then, and
// waits. All ranks do the same at the same time, so the chunks that a rank posts stand for those
// that reach it.
//
//   RankModel rank({.latency = 5000, .ns_per_byte = 0.32, .poll_interval = 200'000});
//   rank.multiply(1e6);
//   rank.post({.pack = 2e4, .bytes = 262'144, .land = 3e4});
//   rank.wait_for_all();
//   rank.now();               // nanoseconds since the call began
#pragma once

#include <cstddef>
#include <functional>
#include <queue>
#include <vector>

namespace plait::plan {

// The cost of a chunk: work in ns, and bytes on the busiest link.
struct ChunkCost {
  double pack = 0;  // before it is sent
  double bytes = 0;
  double land = 0;  // after it has arrived, together with the chunks of all ranks
  // True if the result of `land` is sent back; then also the cost of that.
  bool returns = false;
  double back_pack = 0;
  double back_bytes = 0;
  double take = 0;
};

class RankModel {
 public:
  struct LinkModel {
    double latency = 0;
    double ns_per_byte = 0;
    double poll_interval = 0;  // the interval in which a product polls for chunks
    double slower = 1;         // how many times as long work takes during a product
  };
  explicit RankModel(const LinkModel& link) : link_(link) {}

  void multiply(double ns);
  void work(double ns);

  // Sends the chunk as soon as a slot is free.
  void post(const ChunkCost& chunk);

  // The first two wait until so many chunks have arrived, or have finished (returned, if they
  // return); the third until another chunk has a free slot.
  void wait_for_landed(std::size_t chunks);
  void wait_for_finished(std::size_t chunks);
  void wait_for_room();
  void wait_for_all() { wait_for_finished(chunks_.size()); }

  std::size_t posted() const { return chunks_.size(); }
  std::size_t finished() const { return finished_; }

  double now() const { return now_; }
  double product() const { return product_; }
  double worked() const { return worked_; }
  double waited() const { return waited_; }
  double transfer() const { return transfer_; }  // how long the link was busy

 private:
  enum class Stage { landed, returned };
  struct Event {
    double time;
    Stage stage;
    std::size_t chunk;

    bool operator>(const Event& other) const { return time > other.time; }
  };

  void send_what_has_room();
  double book(double bytes);
  void handle_next();
  void step();
  template <class Ready>
  void wait(Ready ready);

  LinkModel link_;
  std::vector<ChunkCost> chunks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::size_t sent_ = 0;
  std::size_t landed_ = 0;
  std::size_t finished_ = 0;
  double now_ = 0;
  double link_free_ = 0;
  double product_ = 0;
  double worked_ = 0;
  double waited_ = 0;
  double transfer_ = 0;
};

}  // namespace plait::plan
