// Carries chunks as active messages of UCX: a worker in each process, an endpoint for each other.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/carrier.h"
#include "comm/engines/ucx/plugin/registered_memory.h"

namespace plait::comm::ucx {

class UcxCarrier final : public tcp::Carrier {
 public:
  UcxCarrier(int me, int processes);
  ~UcxCarrier() override;

  // The address by which the other processes reach this one, to be told over a way that is trusted.
  std::string address() const;

  // Before anything else is sent to the process. The connection is there when is_sent().
  void connect(int process, std::string_view address);

  std::string_view name() const override { return "ucx"; }
  std::string route_to(int process) const override;
  std::shared_ptr<const void> hold(const base::Region& memory) override;
  void send(int process, const tcp::Frame& frame, const std::byte* payload,
            std::shared_ptr<const void> owner) override;
  bool move(const tcp::Connection::Find& find) override;
  std::uint32_t sent_to(int process) const override { return peers_[process].sent; }
  std::uint32_t come_from(int process) const override { return peers_[process].come; }
  bool is_sent(int process) const override { return peers_[process].under_way == 0; }
  bool is_received(int process, std::uint32_t count) override;
  void note_credit(int process) override { ++peers_[process].credits; }
  const std::string& error_of(int process) const override { return peers_[process].error; }
  int descriptor() const override { return descriptor_; }
  bool arm() override;

 private:
  using Token = std::uint64_t;  // random; a message that doesn't name its receiver's is dropped

  enum class What : std::uint32_t {
    chunk,
    question,  // which of the chunks have come?
    answer,
    greeting,  // says nothing: UCX connects to a process when something is sent to it
  };

  struct Header {
    Token token;
    std::uint32_t process;  // the sender
    What what;
    std::uint64_t
        number;        // of the chunk, the first being 1; in a question and an answer, of the last
    tcp::Frame frame;  // of a chunk
  };

  struct Peer;
  struct Incoming {
    Peer* peer;
    tcp::Frame frame;
    std::shared_ptr<const void> memory;  // the chunk lands in it
    bool is_here = false;
  };
  struct Outgoing {
    Peer* peer;
    Header header;
    std::shared_ptr<const void> owner;  // of the bytes
  };

  // Counts are of chunks, and may go on at 0 after the largest number.
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    Token token = 0;
    std::string route = {};
    unsigned flags = 0;  // of chunks that are sent to it
    std::string error = {};

    std::uint32_t sent = 0;
    std::uint32_t under_way =
        0;  // of these, and of questions and answers: UCX has not done its part
    std::uint32_t credits = 0;
    std::map<std::uint32_t, bool> asked = {};  // questions, and whether they have been answered

    std::uint32_t begun = 0;  // from the peer
    std::uint32_t come = 0;
    std::deque<std::uint32_t> questions = {};  // each is answered when so many have come
    std::deque<Incoming> incoming = {};        // begun, but not come
  };

  static ucs_status_t receive(void* self, const void* header, std::size_t header_bytes, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* how) noexcept;
  static void note_received(void* request, ucs_status_t status, std::size_t bytes,
                            void* incoming) noexcept;
  static void note_sent(void* request, ucs_status_t status, void* outgoing) noexcept;
  static void note_lost(void* peer, ucp_ep_h endpoint, ucs_status_t status) noexcept;

  ucs_status_t receive_chunk(Peer& peer, const Header& header, void* data, std::size_t bytes,
                             bool is_rendezvous);
  ucs_status_t fetch(Incoming& chunk, void* data, std::byte* place);
  bool hand_on(int process);
  void send_message(Peer& peer, const Header& header, const std::byte* payload,
                    std::shared_ptr<const void> owner);
  void send_word(Peer& peer, What what, std::uint32_t number);
  void close() noexcept;

  int me_;
  Token token_;
  bool is_threshold_set_ = false;  // by the user
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  RegisteredMemory registered_;
  bool registers_ = false;  // some process is reached by more than TCP
  int descriptor_ = -1;
  std::deque<Peer> peers_;                       // by process; their addresses are UCX's to keep
  const tcp::Connection::Find* find_ = nullptr;  // while UCX calls back
  bool is_news_ = false;
};

}  // namespace plait::comm::ucx
