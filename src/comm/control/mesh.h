// The connections of this process to all others of one start, and the mailboxes and groups that
// frames are meant for.
//
// A number names a mailbox or a group within the process that receives. Each process counts its
// own, and tells the other members when something is made: so nothing collective is needed to find
// a free number, and frames for what has gone are known as such.
//
// Threads of a rank may use the mesh at once, and each receives whatever comes, also what another
// waits for. A thread that is about to sleep therefore says which news it has seen:
//
//   const std::uint64_t seen = mesh.news();
//   mesh.move();
//   if (!ready()) mesh.sleep(until, seen);
//
// Memory ordering: what makes ready() true is written before news_ is raised, and sleepers_ and the
// bell are changed under the mutex only. A thread that has read the raised value (acquire, pairs
// with ring()) finds ready() true. One that has read an older value either takes the mutex in
// sleep() after the thread that raised it, and sees that there are news; or before it, and then
// counts as a sleeper when the bell is rung. The bell stays rung until no thread sleeps: one that
// comes meanwhile may return at once for nothing, and none sleeps through it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/region.h"
#include "comm/control/carrier.h"
#include "comm/control/chunk_order_gate.h"
#include "comm/control/connection.h"
#include "comm/control/host_peers.h"
#include "comm/core/group.h"
#include "comm/core/wait_policy.h"

namespace plait::comm::tcp {

// A process, as the others know it.
struct Neighbor {
  std::string name;  // for people: "pid 12 on node3"
};

class Mesh {
 public:
  // Takes the sockets, of which `sockets[me]` is empty. If it throws, the caller still has them and
  // can tell the other processes. It uses two members of the policy: `timeout`, which is how long
  // the end may wait for other hosts to take what was sent to them, and `lost_after`.
  Mesh(int me, std::vector<Neighbor> neighbors, std::vector<base::Fd>& sockets,
       const WaitPolicy& policy);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  // Waits until the other hosts have what was sent; not for long where a group has failed.
  ~Mesh();

  int me() const { return me_; }
  int size() const { return static_cast<int>(neighbors_.size()); }
  const std::string& name_of(int process) const { return neighbors_[process].name; }

  // From now on chunks go by the carrier. Before any process sends a chunk to another.
  void carry_by(std::unique_ptr<Carrier> carrier);

  // An owner of a mailbox's memory for chunks, to be given up by let_go(): a carrier may have
  // registered the memory.
  std::shared_ptr<const void> hold(const base::Region& memory);
  void let_go(std::shared_ptr<const void>& owner) noexcept;

  // From now on frames with the number that is returned reach the receiver, until it is removed.
  std::uint32_t add(Receiver& receiver);
  void remove(std::uint32_t number) noexcept;

  // The bytes after the header stay where they are as long as `owner` lives. A frame that is not
  // urgent goes out with the next one or at the next move().
  enum class Urgency { now, soon };
  void send(int process, const Frame& frame, const std::byte* payload,
            std::shared_ptr<const void> owner, Urgency urgency);
  void send_text(int process, Frame frame, const std::string& text);

  // Like send_text(), for a receiver that is being handed a frame: the mutex is held.
  void reply(int process, Frame frame, const std::string& text);

  // Sends and receives what can be moved now. Does nothing while another thread uses the mesh.
  void move() noexcept;

  // Does it in any case, and for all that is here.
  void move_surely() noexcept;

  // Does what move() does, unless that was done in the last few microseconds: for questions that
  // are asked again and again.
  void move_now_and_then() noexcept;

  // Sends what was not urgent: this rank may make no further call for long. A last credit for a
  // process to which this call has sent a chunk goes with the next frame. A carrier that takes
  // credits sends them by itself.
  void end_call() noexcept;

  // Counts the times at which a thread that waits had a reason to poll again.
  std::uint64_t news() const { return news_.load(std::memory_order_acquire); }

  // Sleeps until something comes or may go out, or there are news that were not seen, at most until
  // `until`.
  void sleep(base::Nanoseconds until, std::uint64_t seen);

  // Lets all threads that sleep poll again: something has changed that came by no connection.
  void wake() noexcept;

  // The processes that share memory with this one.
  HostPeers& near() { return near_; }

  // Wakes a near process where it sleeps: right after a store that it is to see.
  void wake(int process);

  // How the process is reached, for people: "tcp: 10.0.0.1 to 10.0.0.2", where a carrier may add
  // what moves the chunks; empty: there is no connection.
  std::string route_to(int process);

  // Why nothing comes from the process any more; empty: it is there, as far as can be told, or it
  // has left the receiver's group in good order, and its last chunks are on their way.
  std::string loss_of(int process, std::uint32_t receiver = 0);

  // True if nothing comes because the process has ended: its kernel has closed the connection.
  bool is_closed_by(int process);

  // True if the carrier has lost the process, while its connection is still there.
  bool is_lost_by_carrier_alone(int process);

  // True if the kernel here has taken all that was sent to the process. True for one that has let a
  // deadline pass in which it took nothing.
  bool is_sent(int process);

  // The processes for which something is queued that the kernel here has not taken, each with the
  // number of its last frame; and whether the kernel has taken all up to that one. Frames that
  // other threads queue meanwhile are not waited for, nor is a credit that waits alone.
  std::vector<Unsent> unsent();
  bool is_taken(const Unsent& unsent);

  // How many chunks the carrier has been given for the process.
  std::uint32_t sent_to(int process);

  // True if the process itself needs no more of this one's calls to get the first `count` of them.
  // It needs none for those that the kernel here has taken.
  bool is_received(int process, std::uint32_t count);

  void give_up_on(int process) noexcept;

  // For a group that is left: moves frames until the other hosts' kernels have all of them, at most
  // for the patience. Where the group has failed, its ranks perhaps take nothing more, and the wait
  // is short: what it leaves unsent is still sent while another group of the process waits.
  void deliver(bool has_failed) noexcept;

  // A group has failed, so the mesh's end waits only for a short time.
  void note_failure() noexcept;

 private:
  // All of these under the mutex.
  bool move_all(bool asks_connections);  // true: something came
  bool ask_connections();
  bool has_urgent();                       // takes the mutex
  base::Nanoseconds age_of_words() const;  // since the connections were asked; without the mutex
  Receiver* find(std::uint32_t number) const;
  bool receive_from(int process);
  void watch(int process, bool also_for_room);
  void list_unsent(int process);
  void ring();

  // The processes that have not taken everything.
  std::vector<int> find_undelivered(bool has_failed);
  void note_slow(int process);

  int me_;
  std::vector<Neighbor> neighbors_;
  HostPeers near_;
  std::mutex mutex_;
  std::vector<Connection> connections_;
  std::vector<bool> given_up_;             // by process: has let a deadline pass
  std::vector<bool> is_slow_;              // has let the short wait of a failed group pass
  std::vector<int> sent_chunks_;           // the processes to which this call has sent chunks
  std::vector<int> unsent_;                // the processes for which there may be something to send
  std::vector<bool> is_watched_for_room_;  // by process
  base::Fd events_;                        // of all connections
  base::Fd bell_;
  int sleepers_ = 0;
  bool is_rung_ = false;
  std::atomic<std::uint64_t> news_{0};
  std::map<std::uint32_t, Receiver*> receivers_;
  Connection::Find find_;                 // by number, among the receivers
  Connection::Find find_for_connection_;  // the same, or the gate where there is a carrier
  std::uint32_t last_number_ = 0;
  base::Nanoseconds patience_;
  base::Nanoseconds lost_after_;
  std::atomic<bool> has_failure_{false};        // relaxed: it shortens a wait, and no more
  std::atomic<base::Nanoseconds> asked_at_{0};  // relaxed: nothing is read because of it
  std::unique_ptr<Carrier> carrier_;            // null: chunks go over the connections
  bool credits_are_carried_ = false;
  std::unique_ptr<ChunkOrderGate> gate_;
};

}  // namespace plait::comm::tcp
