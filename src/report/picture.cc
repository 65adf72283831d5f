#include "report/picture.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"

namespace plait::report {
namespace {

// In pixels.
constexpr double kLeft = 140;  // for the rows' names
constexpr double kRight = 24;
constexpr double kLegend = 26;
constexpr double kHead = 34;  // of a run: its title
constexpr double kRowHeight = 14;
constexpr double kBar = 11;
constexpr double kBetweenRanks = 8;
constexpr double kAxis = 44;
constexpr double kLetter = 6.3;  // about as wide, so that words don't run into one another

// Where a picture stands.
struct Frame {
  double width;
  double heading;  // room for the title; 0: who embeds it has said it
  bool details;    // of each bar, for whoever points at it
};
constexpr Frame kInPage = {.width = 1200, .heading = 0, .details = true};
constexpr Frame kInFile = {.width = 900, .heading = 44, .details = false};

// Indexed by Row.
constexpr std::array<const char*, kRows> kMeanings = {
    "product", "communication: own copies and sums", "link: chunks on their way",
    "exposed: not multiplying"};

// For a screen as light or dark as its reader wants it, and for paper.
constexpr const char* kStyle = R"svg(<style>
.timeline { fill: #1b1f24; font-family: sans-serif; font-size: 11px; }
.timeline .title { font-size: 13px; font-weight: bold; }
.timeline .strong { font-weight: bold; }
.timeline .paper { fill: #ffffff; }
.timeline .grid { stroke: #1b1f24; stroke-opacity: 0.15; }
.timeline .ideal { stroke: #1b1f24; stroke-opacity: 0.7; stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
.timeline .product { fill: #3b6fb6; }
.timeline .communication { fill: #2f9e77; }
.timeline .link { fill: #9a84c6; }
.timeline .exposed { fill: #d9534f; }
@media screen and (prefers-color-scheme: dark) {
.timeline { fill: #e4e7eb; }
.timeline .paper { fill: #14171c; }
.timeline .grid, .timeline .ideal { stroke: #e4e7eb; }
.timeline .product { fill: #6ba0e8; }
.timeline .communication { fill: #4fc49a; }
.timeline .link { fill: #b9a6e3; }
.timeline .exposed { fill: #f0746f; }
}
</style>
)svg";

std::string show_time(double nanoseconds) {
  return base::show_duration(static_cast<base::Nanoseconds>(nanoseconds));
}

// 1, 2 or 5 times a power of ten: about eight steps in the whole.
double step_for(double whole) {
  const double rough = std::max(whole, 1.0) / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

// A browser has trouble with more. But two ranks are always drawn: something passes between them.
constexpr std::size_t kMostBars = 60'000;
constexpr int kFewestRanks = 2;

// So many of the first ranks that their bars can be drawn.
int drawable_ranks(const Timeline& timeline) {
  std::vector<std::size_t> bars(static_cast<std::size_t>(timeline.ranks()));
  for (const Run& run : timeline.runs) {
    for (const Bar& bar : run.bars) ++bars[static_cast<std::size_t>(bar.rank)];
  }
  int ranks = 0;
  std::size_t drawn = 0;
  for (const std::size_t more : bars) {
    drawn += more;
    if (drawn > kMostBars && ranks >= kFewestRanks) break;
    ++ranks;
  }
  return ranks;
}

// What is known of a bar, for whoever points at it.
std::string describe(const Bar& bar) {
  std::string text = fmt::format("rank {}, {}: {}, {} from {}", bar.rank, name(bar.row), bar.name,
                                 show_time(static_cast<double>(bar.end - bar.begin)),
                                 show_time(static_cast<double>(bar.begin)));
  if (bar.args.peer >= 0) text += fmt::format(", rank {}", bar.args.peer);
  if (bar.args.chunk >= 0) text += fmt::format(", chunk {}", bar.args.chunk);
  if (bar.args.bytes >= 0) text += ", " + base::show_bytes(static_cast<double>(bar.args.bytes));
  if (bar.args.flops >= 0 && bar.end > bar.begin) {
    text += fmt::format(", {:.0f} GFLOP/s", static_cast<double>(bar.args.flops) /
                                                static_cast<double>(bar.end - bar.begin));
  }
  return text;
}

std::string text_at(double x, double y, std::string_view more, std::string_view words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\"{}>{}</text>\n", x, y, more, escaped(words));
}

class Picture {
 public:
  Picture(const Timeline& timeline, const Frame& frame)
      : timeline_(timeline),
        frame_(frame),
        ranks_(drawable_ranks(timeline)),
        plot_(frame.width - kLeft - kRight),
        scale_(plot_ / static_cast<double>(std::max<std::int64_t>(timeline.length(), 1))) {}

  std::string draw() {
    double bottom = frame_.heading + kLegend;
    for (const Run& run : timeline_.runs) bottom = draw_run(run, bottom);
    const double height = bottom + kAxis;
    std::string text =
        opening(height) + "\n<title>" + escaped(timeline_.title) + "</title>\n" + kStyle;
    text += fmt::format(
        "<clipPath id=\"plot\"><rect x=\"{:.0f}\" y=\"0\" width=\"{:.0f}\" "
        "height=\"{:.0f}\"/></clipPath>\n",
        kLeft, plot_, height);
    if (frame_.heading > 0) text += heading(height);
    text += legend(frame_.heading + 16) + words_ + axis(bottom);
    text += "<g clip-path=\"url(#plot)\"><g class=\"zoomed\">\n" + bars_;
    const double ideal = kLeft + static_cast<double>(timeline_.ideal()) * scale_;
    text += fmt::format("<path class=\"ideal\" d=\"{}\"><title>ideal: {}</title></path>\n",
                        line(ideal), show_time(static_cast<double>(timeline_.ideal())));
    return text + "</g></g>\n</svg>\n";
  }

 private:
  std::string opening(double height) const {
    std::string text = R"(<svg xmlns="http://www.w3.org/2000/svg" class="timeline" role="img")";
    // A page stretches it; elsewhere it has a size of its own.
    if (frame_.heading > 0)
      text += fmt::format(R"( width="{:.0f}" height="{:.0f}")", frame_.width, height);
    text += fmt::format(R"( viewBox="0 0 {:.0f} {:.0f}")", frame_.width, height);
    // What a script needs to zoom.
    return text +
           fmt::format(
               R"( data-left="{:.0f}" data-plot="{:.0f}" data-beside="{}" data-length="{}">)",
               kLeft, plot_, beside(), timeline_.length());
  }

  std::string heading(double height) const {
    return fmt::format("<rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", frame_.width,
                       height) +
           text_at(12, 22, " class=\"title\"", timeline_.title) +
           text_at(12, 39, "", timeline_.subtitle);
  }

  static std::string legend(double y) {
    std::string text;
    double x = 12;
    for (int row = 0; row < kRows; ++row) {
      const std::string_view meaning = kMeanings[static_cast<std::size_t>(row)];
      text +=
          fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.0f}\" width=\"11\" height=\"11\"/>\n",
                      name(static_cast<Row>(row)), x, y - 10);
      text += text_at(x + 16, y, "", meaning);
      x += 40 + kLetter * static_cast<double>(meaning.size());
    }
    return text;
  }

  double draw_run(const Run& run, double y) {
    std::string title =
        fmt::format("{}: {}", run.title, show_time(static_cast<double>(run.length)));
    if (&run != &timeline_.runs.front() && run.length > 0) {
      title +=
          fmt::format(", {:.2f} times as fast", static_cast<double>(timeline_.runs.front().length) /
                                                    static_cast<double>(run.length));
    }
    if (run.efficiency) title += fmt::format(", efficiency {:.2f}", *run.efficiency);
    title += fmt::format("; exposed {}", show_time(run.exposed()));
    words_ += text_at(12, y + 22, " class=\"title\"", title);
    y += kHead;
    const double begin = y;
    std::vector<std::vector<const Bar*>> bars(static_cast<std::size_t>(ranks_));
    for (const Bar& bar : run.bars) {
      if (bar.rank < ranks_) bars[static_cast<std::size_t>(bar.rank)].push_back(&bar);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      words_ += text_at(12, y + 9, " class=\"strong\"", fmt::format("rank {}", rank));
      for (int row = 0; row < kRows; ++row) {
        words_ += text_at(kLeft - 8, y + row * kRowHeight + 9, " text-anchor=\"end\"",
                          name(static_cast<Row>(row)));
      }
      for (const Bar* bar : bars[static_cast<std::size_t>(rank)]) draw_bar(*bar, y);
      y += kRows * kRowHeight + kBetweenRanks;
    }
    runs_.emplace_back(begin - 4, y - kBetweenRanks);
    return y;
  }

  // Beside bars alone, as a title may be long.
  std::string line(double x) const {
    std::string path;
    for (const auto& [begin, end] : runs_)
      path += fmt::format("M{:.1f} {:.0f}V{:.0f}", x, begin, end);
    return path;
  }

  // The same for who draws lines himself: "begin end begin end".
  std::string beside() const {
    std::string text;
    for (const auto& [begin, end] : runs_) text += fmt::format("{:.0f} {:.0f} ", begin, end);
    return text;
  }

  void draw_bar(const Bar& bar, double y) {
    bars_ +=
        fmt::format(R"(<rect class="bar {}" x="{:.2f}" y="{:.0f}" width="{:.2f}" height="{:.0f}")",
                    name(bar.row), kLeft + static_cast<double>(bar.begin) * scale_,
                    y + static_cast<int>(bar.row) * kRowHeight,
                    std::max(static_cast<double>(bar.end - bar.begin) * scale_, 0.3), kBar);
    bars_ += frame_.details ? fmt::format("><title>{}</title></rect>\n", escaped(describe(bar)))
                            : std::string("/>\n");
  }

  std::string axis(double bottom) const {
    std::string grid;
    std::string text = "<g class=\"axis\">\n";
    const auto whole = static_cast<double>(timeline_.length());
    const double step = step_for(whole);
    for (double at = 0; at <= whole; at += step) {
      const double x = kLeft + at * scale_;
      grid += line(x);
      text += text_at(x, bottom + 14, " text-anchor=\"middle\"", at == 0 ? "0" : show_time(at));
    }
    text += text_at(kLeft, bottom + 32, "", ideal_text() + ranks_text());
    return fmt::format("<path class=\"grid\" d=\"{}\"/>\n", grid) + text + "</g>\n";
  }

  // Of a step the products alone are known, with whatever communication they have beside them.
  std::string ideal_text() const {
    const std::string product = show_time(static_cast<double>(timeline_.product));
    if (timeline_.collective == 0)
      return fmt::format("the thin line is the ideal: {} (products alone)", product);
    return fmt::format("the thin line is the ideal: {} (product alone {}, collective alone {})",
                       show_time(static_cast<double>(timeline_.ideal())), product,
                       show_time(static_cast<double>(timeline_.collective)));
  }

  std::string ranks_text() const {
    const int all = timeline_.ranks();
    return ranks_ == all ? std::string()
                         : fmt::format("; {} of {} ranks are drawn, the first ones", ranks_, all);
  }

  const Timeline& timeline_;
  const Frame& frame_;
  int ranks_;
  double plot_;   // pixels of the longest run
  double scale_;  // pixels for a nanosecond
  std::string words_;
  std::string bars_;
  std::vector<std::pair<double, double>> runs_;  // from where to where their bars are
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string picture(const Timeline& timeline) { return Picture(timeline, kInPage).draw(); }

std::string picture_file(const Timeline& timeline) { return Picture(timeline, kInFile).draw(); }

}  // namespace plait::report
