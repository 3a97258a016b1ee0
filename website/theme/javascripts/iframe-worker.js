// Browsers start no workers from the file system. There, this Worker runs the script in a hidden frame instead,
// so that the search works without a server. On a server nothing is changed.
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      document.body.append(this.frame);
      this.start(new URL(url, document.baseURI).href);
    }

    start(url) {
      const inside = this.frame.contentWindow, page = this.frame.contentDocument;
      const answer = data => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.postMessage = data => setTimeout(() => answer(data));
      inside.importScripts = (...urls) => Promise.all(urls.map(src => new Promise((done, failed) => {
        page.body.append(Object.assign(page.createElement("script"), { src, onload: done, onerror: failed }));
      })));
      const script = Object.assign(page.createElement("script"), { src: url });
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach(data => this.deliver(data));
      };
      page.body.append(script);
    }

    deliver(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.ready) this.deliver(data);
      else this.waiting.push(data);
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = window.Worker = IFrameWorker;
})();
