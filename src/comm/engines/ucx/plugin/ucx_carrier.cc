#include "comm/engines/ucx/plugin/ucx_carrier.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "comm/engines/ucx/plugin/beyond_calls.h"
#include "comm/engines/ucx/plugin/lanes.h"
#include "comm/engines/ucx/plugin/quiet.h"

namespace plait::comm::ucx {
namespace {

using base::Nanoseconds;

constexpr unsigned kMessage = 1;  // the number of our active messages
constexpr unsigned kEager = UCP_AM_SEND_FLAG_EAGER;

// One call of UCX's progress handles a few events.
constexpr int kMostTurns = 64;

// True if `count` is at least `wanted`, where neither is above `now`. Counts go on at 0 after the
// largest number, so this is right for counts of the last 2^32 chunks.
bool is_at_least(std::uint32_t count, std::uint32_t wanted, std::uint32_t now) {
  return now - count <= now - wanted;
}

// Endpoints are closed without asking the peers, so this is for hangs.
constexpr Nanoseconds kClosing = base::kSecond;

std::string text_of(ucs_status_t status) { return ucs_status_string(status); }

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) base::fail(Code::system, "UCX cannot ", what, ": ", text_of(status));
}

std::uint64_t random_number() {
  return std::strtoull(base::random_name().substr(0, 16).c_str(), nullptr, 16);
}

ucp_config_t* read_config() {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "read its variables UCX_...");
  return config;
}

ucp_context_h make_context(ucp_config_t* config, int processes) {
  // Messages that are copied overtake each other where they have several lanes.
  ucs_status_t status = ucp_config_modify(config, "MAX_EAGER_LANES", "1");
  ucp_params_t params = {};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<std::size_t>(processes);
  params.name = "plait";
  ucp_context_h context = nullptr;
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  check(status, "be started");
  return context;
}

// The lanes that UCX has chosen for an endpoint.
Lanes lanes_of(ucp_ep_h endpoint) {
  return read_lanes(printed([&](std::FILE* stream) { ucp_ep_print_info(endpoint, stream); }));
}

// Lets UCX use the registration of the memory that the chunk lies in or comes to. All of it is
// memory of the processor, which UCX would otherwise find out for each chunk.
void send_where(ucp_request_param_t& param, ucp_mem_h registration) {
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  if (registration == nullptr) return;
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  param.memh = registration;
}

}  // namespace

UcxCarrier::UcxCarrier(int me, int processes) : me_(me), token_(random_number()) {
  peers_.resize(static_cast<std::size_t>(processes));
  try {
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> config(read_config(),
                                                                              ucp_config_release);
    is_threshold_set_ = is_threshold_set(config.get());
    context_ = make_context(config.get(), processes);
    ucp_worker_params_t params = {};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucp_worker_create(context_, &params, &worker_), "make a worker");
    check(ucp_worker_get_efd(worker_, &descriptor_), "make a descriptor to wait at");
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = &receive;
    handler.arg = this;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "receive active messages");
  } catch (...) {
    close();
    throw;
  }
}

UcxCarrier::~UcxCarrier() { close(); }

// Peers are told nothing: this process has left their groups, or they have failed.
void UcxCarrier::close() noexcept {
  const Quiet quiet;
  if (descriptor_ >= 0) end_sending(descriptor_);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  std::vector<ucs_status_ptr_t> closing;
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
  }
  const Nanoseconds deadline = base::now() + kClosing;
  for (ucs_status_ptr_t request : closing) {
    while (ucp_request_check_status(request) == UCS_INPROGRESS && base::now() < deadline)
      ucp_worker_progress(worker_);
    ucp_request_free(request);
  }
  // UCX's progress ends the sends that were under way to a dead peer; otherwise it complains.
  const auto is_busy = [](const Peer& peer) { return peer.under_way > 0; };
  while (std::any_of(peers_.begin(), peers_.end(), is_busy) && base::now() < deadline)
    ucp_worker_progress(worker_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  // Chunks that were not handed on hold memory whose registration must end before the context.
  for (Peer& peer : peers_) peer.incoming.clear();
  if (context_ != nullptr) ucp_cleanup(context_);
}

std::string UcxCarrier::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(ucp_worker_get_address(worker_, &address, &bytes), "tell its address");
  std::string text(sizeof(token_), '\0');
  std::memcpy(text.data(), &token_, sizeof(token_));
  text.append(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return text;
}

void UcxCarrier::connect(int process, std::string_view address) {
  Peer& peer = peers_[process];
  PLAIT_CHECK(address.size() > sizeof(peer.token), "process ", process, " has sent ",
              address.size(), " bytes for its UCX address");
  std::memcpy(&peer.token, address.data(), sizeof(peer.token));
  // UCX reads a structure there.
  const std::vector<std::uint64_t> aligned = [&] {
    const std::string_view rest = address.substr(sizeof(peer.token));
    std::vector<std::uint64_t> copy((rest.size() + 7) / 8);
    std::memcpy(copy.data(), rest.data(), rest.size());
    return copy;
  }();
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(aligned.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &note_lost, .arg = &peer};
  const Quiet quiet;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &peer.endpoint);
  if (status != UCS_OK) {
    base::fail(Code::system, "UCX has no transport between rank ", me_, " and rank ", process,
               " that would notice the end of the other: ", text_of(status),
               "; UCX_TLS and UCX_NET_DEVICES say which it may use");
  }
  const Lanes lanes = lanes_of(peer.endpoint);
  if (!is_threshold_set_ && lanes.has_only_tcp) peer.flags = kEager;
  registers_ = registers_ || !lanes.has_only_tcp;
  peer.route = lanes.can_fetch ? "large chunks read from registered slots by " : "chunks by ";
  peer.route += lanes.movers;
  send_word(peer, What::greeting, 0);
}

std::string UcxCarrier::route_to(int process) const { return peers_[process].route; }

// Over TCP there is nothing to register for.
std::shared_ptr<const void> UcxCarrier::hold(const base::Region& memory) {
  if (!registers_) return std::make_shared<const base::Region>(memory);
  return registered_.add(context_, memory);
}

void UcxCarrier::send(int process, const tcp::Frame& frame, const std::byte* payload,
                      std::shared_ptr<const void> owner) {
  Peer& peer = peers_[process];
  send_message(peer,
               {.token = peer.token,
                .process = static_cast<std::uint32_t>(me_),
                .what = What::chunk,
                .number = ++peer.sent,
                .frame = frame},
               payload, std::move(owner));
}

void UcxCarrier::send_message(Peer& peer, const Header& header, const std::byte* payload,
                              std::shared_ptr<const void> owner) {
  if (!peer.error.empty()) return;
  auto message = std::make_unique<Outgoing>(
      Outgoing{.peer = &peer, .header = header, .owner = std::move(owner)});
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = &note_sent;
  param.user_data = message.get();
  param.flags = header.what == What::chunk ? peer.flags : kEager;
  const std::size_t bytes = payload == nullptr ? 0 : header.frame.bytes;
  if (bytes > 0) send_where(param, registered_.handle_at(payload));
  const Quiet quiet;
  ucs_status_ptr_t request = ucp_am_send_nbx(peer.endpoint, kMessage, &message->header,
                                             sizeof(Header), payload, bytes, &param);
  if (request == nullptr) return;  // it is done
  if (UCS_PTR_IS_ERR(request)) {
    peer.error = "UCX cannot send to it: " + text_of(UCS_PTR_STATUS(request));
    return;
  }
  ++peer.under_way;
  [[maybe_unused]] const Outgoing* kept = message.release();  // until note_sent()
}

void UcxCarrier::send_word(Peer& peer, What what, std::uint32_t number) {
  send_message(peer,
               {.token = peer.token,
                .process = static_cast<std::uint32_t>(me_),
                .what = what,
                .number = number,
                .frame = {.kind = tcp::Kind::question, .receiver = 0}},
               nullptr, nullptr);
}

void UcxCarrier::note_sent(void* request, ucs_status_t status, void* outgoing) noexcept {
  const std::unique_ptr<Outgoing> message(static_cast<Outgoing*>(outgoing));
  Peer& peer = *message->peer;
  --peer.under_way;
  if (status != UCS_OK && peer.error.empty())
    peer.error = "UCX cannot send to it: " + text_of(status);
  ucp_request_free(request);
}

void UcxCarrier::note_lost(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) noexcept {
  std::string& error = static_cast<Peer*>(peer)->error;
  if (error.empty()) error = "UCX has lost it: " + text_of(status);
}

ucs_status_t UcxCarrier::receive(void* self, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* how) noexcept {
  UcxCarrier& carrier = *static_cast<UcxCarrier*>(self);
  Header known = {};
  // Without find_ the worker is being closed.
  if (header_bytes != sizeof(known) || carrier.find_ == nullptr) return UCS_OK;
  std::memcpy(&known, header, sizeof(known));
  // No rank of this start has sent it.
  if (known.token != carrier.token_ || known.process >= carrier.peers_.size()) return UCS_OK;
  Peer& peer = carrier.peers_[known.process];
  carrier.is_news_ = true;
  switch (known.what) {
    case What::chunk:
      return carrier.receive_chunk(peer, known, data, bytes,
                                   (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    case What::question:
      peer.questions.push_back(static_cast<std::uint32_t>(known.number));
      break;
    case What::answer:
      for (auto& [count, is_answered] : peer.asked) {
        is_answered =
            is_answered || is_at_least(static_cast<std::uint32_t>(known.number), count, peer.sent);
      }
      break;
    case What::greeting:
      break;
  }
  return UCS_OK;
}

ucs_status_t UcxCarrier::receive_chunk(Peer& peer, const Header& header, void* data,
                                       std::size_t bytes, bool is_rendezvous) {
  if (!peer.error.empty()) return UCS_OK;
  const tcp::Frame& frame = header.frame;
  if (header.number != ++peer.begun || frame.kind != tcp::Kind::chunk || frame.bytes != bytes) {
    peer.error = base::sentence("chunk ", peer.begun, " from it was expected, and UCX brought ",
                                header.number, " of ", bytes, " bytes");
    return UCS_OK;
  }
  Incoming& chunk = peer.incoming.emplace_back(
      Incoming{.peer = &peer, .frame = frame, .memory = nullptr, .is_here = true});
  tcp::Receiver* receiver = (*find_)(frame.receiver);
  if (receiver == nullptr) return UCS_OK;  // its mailbox is gone
  std::byte* place = receiver->place_for(static_cast<int>(header.process), frame);
  if (place == nullptr) {
    peer.error = "a chunk came from it for which there was no room";
    return UCS_OK;
  }
  if (is_rendezvous) {
    chunk.memory = receiver->memory();
    return fetch(chunk, data, place);
  }
  if (bytes > 0) std::memcpy(place, data, bytes);
  return UCS_OK;
}

// The chunk's bytes are still at the sender. It counts as here when UCX has brought them.
ucs_status_t UcxCarrier::fetch(Incoming& chunk, void* data, std::byte* place) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &note_received;
  param.user_data = &chunk;
  send_where(param, registered_.handle_at(place));
  ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, data, place, chunk.frame.bytes, &param);
  if (UCS_PTR_IS_ERR(request)) {
    chunk.peer->error = "UCX cannot fetch a chunk from it: " + text_of(UCS_PTR_STATUS(request));
  } else if (request != nullptr) {
    chunk.is_here = false;
  }
  return UCS_INPROGRESS;  // the data is UCX's again
}

void UcxCarrier::note_received(void* request, ucs_status_t status, std::size_t /*bytes*/,
                               void* incoming) noexcept {
  Incoming& chunk = *static_cast<Incoming*>(incoming);
  chunk.memory.reset();
  if (status == UCS_OK) {
    chunk.is_here = true;
  } else if (chunk.peer->error.empty()) {
    chunk.peer->error = "UCX cannot fetch a chunk from it: " + text_of(status);
  }
  ucp_request_free(request);
}

// A chunk that is fetched may be here later than one that was sent after it.
bool UcxCarrier::hand_on(int process) {
  Peer& peer = peers_[process];
  bool is_news = false;
  while (!peer.incoming.empty() && peer.incoming.front().is_here && peer.error.empty()) {
    const tcp::Frame frame = peer.incoming.front().frame;
    peer.incoming.pop_front();
    ++peer.come;
    is_news = true;
    tcp::Receiver* receiver = (*find_)(frame.receiver);
    if (receiver != nullptr && !receiver->receive(process, frame, {}))
      peer.error = "a chunk that came from it made no sense to its receiver";
  }
  return is_news;
}

bool UcxCarrier::move(const tcp::Connection::Find& find) {
  const Quiet quiet;
  find_ = &find;
  for (int turn = 0; turn < kMostTurns && ucp_worker_progress(worker_) != 0; ++turn) {
  }
  bool is_news = std::exchange(is_news_, false);
  for (int process = 0; process < static_cast<int>(peers_.size()); ++process) {
    is_news |= hand_on(process);
    Peer& peer = peers_[process];
    // A question is about chunks that were sent shortly before it, so the difference is small.
    const auto has_come = [&](std::uint32_t n) {
      return static_cast<std::int32_t>(peer.come - n) >= 0;
    };
    if (std::erase_if(peer.questions, has_come) == 0) continue;
    send_word(peer, What::answer, peer.come);
  }
  find_ = nullptr;
  return is_news;
}

// Chunks reach their receivers in order, so a credit for one shows that those before it are there.
// While other threads go on sending, UCX always has something to do, and their groups wait for it.
bool UcxCarrier::is_received(int process, std::uint32_t count) {
  Peer& peer = peers_[process];
  const auto question = peer.asked.find(count);
  const bool is_answered = question != peer.asked.end() && question->second;
  if (is_answered || is_at_least(peer.credits, count, peer.sent))
    return peer.sent != count || is_sent(process);
  if (question != peer.asked.end()) return false;
  constexpr std::size_t kMostAnswers = 64;  // of groups that have ended
  if (peer.asked.size() > kMostAnswers)
    std::erase_if(peer.asked, [](const auto& one) { return one.second; });
  peer.asked.emplace(count, false);
  send_word(peer, What::question, count);
  return false;
}

bool UcxCarrier::arm() { return ucp_worker_arm(worker_) != UCS_ERR_BUSY; }

}  // namespace plait::comm::ucx
