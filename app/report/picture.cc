#include "report/picture.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"

namespace plait::report {
namespace {

// All sizes are in pixels.
constexpr double kLeft = 140;  // for the names of rows
constexpr double kRight = 24;
constexpr double kLegend = 26;
constexpr double kHead = 34;  // for the title of a run
constexpr double kRowHeight = 14;
constexpr double kBar = 11;
constexpr double kBetweenRanks = 8;
constexpr double kTicks = 18;  // for the times below a run
constexpr double kRemark = 26;
constexpr double kLetter = 6.3;  // the approximate width of a letter, so that texts don't overlap

// The layout of a picture.
struct Frame {
  double width;
  double heading;  // room for the title; 0: the embedding page shows it
  bool details;    // a description of each bar, shown under the pointer
};
constexpr Frame kInPage = {.width = 1200, .heading = 0, .details = true};
constexpr Frame kInFile = {.width = 900, .heading = 44, .details = false};

// Indexed by Row.
constexpr std::array<const char*, kRows> kMeanings = {
    "product", "communication: own copies and sums", "link: chunks on their way",
    "exposed: not multiplying"};

// Follows the light or dark scheme of the reader's screen; prints dark on white.
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

constexpr const char* kNamespace = R"(xmlns="http://www.w3.org/2000/svg")";

std::string show_time(double nanoseconds) {
  return base::show_duration(static_cast<base::Nanoseconds>(nanoseconds));
}

// A step of 1, 2 or 5 times a power of ten that divides the whole into about eight.
double step_for(double whole) {
  const double rough = std::max(whole, 1.0) / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

// A browser is slow with more bars. But at least two ranks are drawn, to show what passes between
// them.
constexpr std::size_t kMostBars = 60'000;
constexpr int kFewestRanks = 2;

// How many of the first ranks can be drawn with at most kMostBars bars.
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

// The description of a bar, shown under the pointer.
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
    bands_.push_back({.top = 0, .words = legend(frame_.heading + 16)});
    double bottom = frame_.heading + kLegend;
    for (const Run& run : timeline_.runs) bottom = draw_run(run, bottom);
    bands_.push_back(
        {.top = bottom, .words = text_at(kLeft, bottom + 14, "", ideal_text() + ranks_text())});
    height_ = bottom + kRemark;
    return frame_.details ? in_page() : in_file();
  }

 private:
  // A part of the picture that is not split between two pages.
  struct Band {
    double top;
    std::string words = {};
    std::string bars = {};
    bool ends_run = false;
  };

  // Each band is an SVG of its own, because printing can't break a page inside an SVG. A run that
  // fits on a page is not split either.
  std::string in_page() const {
    std::string text = fmt::format(
        "<div class=\"timeline\" role=\"img\" aria-label=\"{}\" data-left=\"{:.0f}\" "
        "data-plot=\"{:.0f}\" data-beside=\"{}\" data-length=\"{}\">\n{}<div>\n",
        escaped(timeline_.title), kLeft, plot_, beside(), timeline_.length(), kStyle);
    for (std::size_t i = 0; i < bands_.size(); ++i) {
      const Band& band = bands_[i];
      const double end = i + 1 < bands_.size() ? bands_[i + 1].top : height_;
      text += fmt::format("<svg {} viewBox=\"0 {:.0f} {:.0f} {:.0f}\">\n", kNamespace, band.top,
                          frame_.width, end - band.top);
      if (i == 0) text += clip();
      text += band.words;
      if (i > 0 && i + 1 < bands_.size()) text += grid() + zoomed(band.bars);
      text += band.ends_run && i + 2 < bands_.size() ? "</svg>\n</div><div>\n" : "</svg>\n";
    }
    return text + "</div>\n</div>\n";
  }

  std::string in_file() const {
    std::string words;
    std::string bars;
    for (const Band& band : bands_) {
      words += band.words;
      bars += band.bars;
    }
    return fmt::format(
               "<svg {0} class=\"timeline\" role=\"img\" width=\"{1:.0f}\" height=\"{2:.0f}\" "
               "viewBox=\"0 0 {1:.0f} {2:.0f}\">\n<title>{3}</title>\n{4}",
               kNamespace, frame_.width, height_, escaped(timeline_.title), kStyle) +
           clip() + heading() + words + grid() + zoomed(bars) + "</svg>\n";
  }

  std::string clip() const {
    return fmt::format(
        "<clipPath id=\"plot\"><rect x=\"{:.0f}\" y=\"0\" width=\"{:.0f}\" "
        "height=\"{:.0f}\"/></clipPath>\n",
        kLeft, plot_, height_);
  }

  // The bars, which the script stretches.
  std::string zoomed(std::string_view bars) const {
    const auto ideal = static_cast<double>(timeline_.ideal());
    if (ideal == 0) {
      return fmt::format("<g clip-path=\"url(#plot)\"><g class=\"zoomed\">\n{}</g></g>\n", bars);
    }
    return fmt::format(
        "<g clip-path=\"url(#plot)\"><g class=\"zoomed\">\n{}"
        "<path class=\"ideal\" d=\"{}\"><title>ideal: {}</title></path>\n</g></g>\n",
        bars, line(kLeft + ideal * scale_), show_time(ideal));
  }

  std::string heading() const {
    return fmt::format("<rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", frame_.width,
                       height_) +
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

  std::string title_of(const Run& run) const {
    std::string title =
        fmt::format("{}: {}", run.title, show_time(static_cast<double>(run.length)));
    if (&run != &timeline_.runs.front() && run.length > 0) {
      title +=
          fmt::format(", {:.2f} times as fast", static_cast<double>(timeline_.runs.front().length) /
                                                    static_cast<double>(run.length));
    }
    if (run.efficiency) title += fmt::format(", efficiency {:.2f}", *run.efficiency);
    return title + fmt::format("; exposed {}", show_time(run.exposed()));
  }

  // The title is drawn with the first rank, and the times with the last.
  double draw_run(const Run& run, double y) {
    bands_.push_back({.top = y, .words = text_at(12, y + 22, " class=\"title\"", title_of(run))});
    y += kHead;
    const double begin = y;
    std::vector<std::vector<const Bar*>> bars(static_cast<std::size_t>(ranks_));
    for (const Bar& bar : run.bars) {
      if (bar.rank < ranks_) bars[static_cast<std::size_t>(bar.rank)].push_back(&bar);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank > 0) bands_.push_back({.top = y});
      draw_rank(rank, bars[static_cast<std::size_t>(rank)], y);
      y += kRows * kRowHeight + kBetweenRanks;
    }
    runs_.emplace_back(begin - 4, y - kBetweenRanks);
    bands_.back().ends_run = true;
    // In an HTML page a run may fill a window or a sheet, so each has its own times.
    if (!frame_.details && &run != &timeline_.runs.back()) return y;
    bands_.back().words += ticks(y);
    return y + kTicks;
  }

  void draw_rank(int rank, const std::vector<const Bar*>& bars, double y) {
    Band& band = bands_.back();
    band.words += text_at(12, y + 9, " class=\"strong\"", fmt::format("rank {}", rank));
    for (int row = 0; row < kRows; ++row) {
      band.words += text_at(kLeft - 8, y + row * kRowHeight + 9, " text-anchor=\"end\"",
                            name(static_cast<Row>(row)));
    }
    for (const Bar* bar : bars) draw_bar(band.bars, *bar, y);
  }

  // A vertical line across the bars only, because a title may be long.
  std::string line(double x) const {
    std::string path;
    for (const auto& [begin, end] : runs_)
      path += fmt::format("M{:.1f} {:.0f}V{:.0f}", x, begin, end);
    return path;
  }

  // The vertical extents of line(), for the script: "begin end begin end".
  std::string beside() const {
    std::string text;
    for (const auto& [begin, end] : runs_) text += fmt::format("{:.0f} {:.0f} ", begin, end);
    return text;
  }

  void draw_bar(std::string& bars, const Bar& bar, double y) const {
    bars +=
        fmt::format(R"(<rect class="bar {}" x="{:.2f}" y="{:.0f}" width="{:.2f}" height="{:.0f}")",
                    name(bar.row), kLeft + static_cast<double>(bar.begin) * scale_,
                    y + static_cast<int>(bar.row) * kRowHeight,
                    std::max(static_cast<double>(bar.end - bar.begin) * scale_, 0.3), kBar);
    bars += frame_.details ? fmt::format("><title>{}</title></rect>\n", escaped(describe(bar)))
                           : std::string("/>\n");
  }

  template <class Each>
  void for_each_tick(Each each) const {
    const auto whole = static_cast<double>(timeline_.length());
    const double step = step_for(whole);
    for (double at = 0; at <= whole; at += step) each(at, kLeft + at * scale_);
  }

  std::string grid() const {
    std::string lines;
    for_each_tick([&](double /*at*/, double x) { lines += line(x); });
    return fmt::format("<path class=\"grid\" d=\"{}\"/>\n", lines);
  }

  std::string ticks(double y) const {
    std::string text = "<g class=\"axis\">\n";
    for_each_tick([&](double at, double x) {
      text += text_at(x, y + 10, " text-anchor=\"middle\"", at == 0 ? "0" : show_time(at));
    });
    return text + "</g>\n";
  }

  // For a step only the products alone are known, including communication that overlaps with them.
  // For a recorded program, nothing is known.
  std::string ideal_text() const {
    if (timeline_.ideal() == 0) return {};
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
                         : fmt::format("; only the first {} of {} ranks are drawn", ranks_, all);
  }

  const Timeline& timeline_;
  const Frame& frame_;
  int ranks_;
  double plot_;   // width of the longest run in pixels
  double scale_;  // pixels per nanosecond
  double height_ = 0;
  std::vector<Band> bands_;                      // from top to bottom
  std::vector<std::pair<double, double>> runs_;  // the top and bottom of each run's bars
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
