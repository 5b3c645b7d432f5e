"""The words by which the scanner knows what a sentence is about, in ten languages.

A word stands for ideas. They are written as they are after `component.agent.scanner_folds`: small
letters, no accents, no apostrophes. `*` at the end stands for any ending (of a phrase: a plural);
words of a phrase are joined by `_`. Chinese and Japanese words are found anywhere in a sentence.
"""

from typing import Final

# What a word can stand for; a word may stand for several.
(
    FORGET,  # to no longer mind something
    ORDER,  # what a model is to mind
    PRIOR,  # that it came before
    YOUR,  # of the one who reads this
    TOLD,  # that somebody has told or given it
    EVERYTHING,
    FOLLOW,
    NOT,
    VOID,  # no longer in force
    INSTEAD,
    MODEL,  # a language model, an assistant
    USER,  # whom it works for
    SYSTEM,
    REVEAL,
    PROMPT,  # what the model was told at first
    SEND,
    SECRET,
    PLACE,  # an address on the net
    CALL,
    TOOL,
    ASK,
    HARM,  # what cannot be undone
    TELL,
    SECRETLY,
    YOU_ARE,
    NOW,
    PRETEND,
    FREE,  # without, free of
    LIMIT,
    UNBOUND,  # in itself: a model without limits
    MODE,
    MUST,
    IF_YOU_ARE,
    SAY,  # what a reader may be told to write
    REMEMBER,
    MEMORY,
    TALK,  # said of attacks rather than in one
    NOTE,
    COLON,
    COMMA,
    END,
    TO_YOU,
    GOAL,
    HERE,
    NEW,
    KNOW,
    START,
) = (1 << number for number in range(47))

DO: Final = FORGET | REVEAL | SEND | CALL | HARM | SAY | FOLLOW | REMEMBER
"""What a reader can be told to do."""

WORDS: Final[tuple[tuple[int, str], ...]] = (
    (
        FORGET,
        """
        ignore disregard forget neglect override overrule bypass discard abandon drop
        unlearn set_aside put_aside pay_no_attention pay_no_heed never_mind nevermind erase
        skip ignor do_not_follow don_t_follow dont_follow do_not_obey don_t_obey
        must_not_obey must_not_follow stop_following stop_obeying no_longer_follow
        not_follow_any cease_following throw_out not_to_be_followed do_not_listen clear_your
        reset_your ignoriere ignorier ignorieren_sie vergiss vergesst vergessen_sie
        missachte missachten_sie ubergehe verwirf befolge_nicht folge_nicht beachte_nicht
        befolge_ab_jetzt_nicht ignorez oublie oubliez neglige negligez ne_tiens_plus_compte
        ne_tenez_plus_compte ne_tiens_pas_compte ne_tenez_pas_compte fais_abstraction
        ne_suis_plus ne_suis_pas ne_suivez_plus ne_suivez_pas ignora ignorad ignoren olvida
        olvide olvidad olviden omite descarta desatiende no_hagas_caso no_tengas_en_cuenta
        no_sigas no_obedezcas haz_caso_omiso ignori ignorate dimentica dimenticate
        dimentichi trascura non_seguire non_tenere_conto non_considerare tralascia esqueca
        esquece desconsidere desconsidera despreze nao_siga nao_sigas nao_obedeca negeer
        vergeet volg_niet let_niet_op sla_geen_acht игнорируй
        игнорируйте забудь забудьте отбрось
        пренебрегай проигнорируй проигнорируйте
        не_обращай_внимания не_следуй не_слушай
        не_выполняй 忽略 无视 無視 忘记 忘掉 忘れ 不要遵守 不要理会 不要遵循
        別理會 抛开 抛弃 従わない 従わず 破棄
        """,
    ),
    (
        ORDER,
        """
        instruction instructions instrution* instrucion* rule rules guideline* directive*
        directions orders prompt prompts programming constraint* commands polic* criteria
        safeguards anweisung* instruktion* regel regeln vorgabe vorgaben befehl* richtlinie*
        systemanweisung* anordnung* auftrag consigne* directives regle regles ordres
        instrucciones instruccion reglas indicaciones directrices ordenes normas istruzioni
        istruzione regole direttive ordini indicazioni instrucoes instrucao regras
        diretrizes ordens orientacoes instructies instructie opdrachten richtlijnen regels
        инструкци* правил* указани* команд*
        предписани* директив* 指令 指示 规则 規則 命令 要求 设定 ルール
        指針 設定 约束
        """,
    ),
    (
        PRIOR,
        """
        previous previus prior earlier above preceding before original initial foregoing
        so_far up_to_now until_now previously vorherig* vorig* bisherig* bisher fruher*
        obig* vorangegangen* vorher zuvor ursprunglich* precedent* anterieur* ci_dessus
        jusqu_ici auparavant initial* anterior* previa* previo* antes hasta_ahora de_arriba
        finora sopra iniziali prima acima ate_agora vorige eerdere voorgaande bovenstaande
        eerder tot_nu_toe hiervoor предыдущ* прежн* ранее раньше
        предшествующ* вышеуказанн* выше 之前 以前 以上 上述 先前
        前面 前の 上記 これまで 今まで 从前 原来
        """,
    ),
    (
        YOUR,
        """
        your yours ihre deine deinen deiner deines dein ihren tes ton ta vos votre tus tu
        sus tuo tuoi tue tua suas seu seus teu teus jouw uw je свои свой твои
        твой ваши 你的 您的 あなたの system systems operator developer developers
        developper* creator* safety systeme sistema sistem* системн* 系统 システム
        desarrollador* entwickler*
        """,
    ),
    (
        TOLD,
        """
        told given received gave said wrote configured got gegeben gesagt erhalten bekommen
        vorgegeben donnees recues recu dites dit dijeron dado dieron recibiste recibido
        dicho date dato detto ricevuto hanno disseram recebeu deram dadas gekregen gegeven
        opgedragen verteld дали говорили сказали получил
        получила 收到 告诉你 给你 与えられた 言われた
        """,
    ),
    (
        EVERYTHING,
        """
        everything all anything any every whatever what alles alle allen was tout toutes
        tous ce_que todo todas todos lo_que tutte tutti tutto quello_che tudo o_que wat
        все всё всех 所有 一切 全部 すべて 全て
        """,
    ),
    (
        FOLLOW,
        """
        follow obey listen comply befolge folge folgen_sie gehorche suis suivez obeis
        obeissez sigue siga obedece obedezca segui seguite obbedisci siga_apenas obedeca
        volg gehoorzaam следуй следуйте слушай слушайся 听从
        遵循 遵守 服从 按照 従って 従う 従え
        """,
    ),
    (
        NOT,
        """
        not never don_t dont no_longer must_not nobody no without nicht nichts niemals nie
        kein keine keinen ohne ne pas jamais sans rien nada nunca jamas sin non niente mai
        senza nao sem niet niets nooit zonder не ничего никогда без 不要
        不得 不能 别 勿 不 无需 没有 しない せず ないで ずに なく
        """,
    ),
    (
        VOID,
        """
        void cancelled canceled replaced obsolete outdated revoked lifted superseded
        no_longer_apply do_not_apply out_of_date invalid mistake supersede supersedes
        take_precedence takes_precedence has_changed have_changed has_been_completed
        ungultig aufgehoben gelten_nicht annulees invalides no_valen anuladas annullate
        nao_valem vervallen отменены недействительны 作废 失效 无效
        無効
        """,
    ),
    (
        INSTEAD,
        """
        instead only nothing_else just stattdessen nur plutot uniquement seulement solo
        solamente unicamente soltanto invece apenas somente alleen только вместо
        只 直接 而是 だけ 代わりに
        """,
    ),
    (
        MODEL,
        """
        assistant assistants ai ais a_i llm llms gpt chatgpt chatbot* chat_bot claude gemini
        copilot language_model* ai_model* agents ai_agent* summarizer* summariser*
        automated_reader* automated_system* bots crawlers screening_model the_model model ki
        ki_modell* ki_system* sprachmodell* assistenten assistent ia assistant_automatique
        modele_de_langue modele_de_langage intelligence_artificielle asistente
        modelo_de_lenguaje inteligencia_artificial asistentes modelo assistente
        modello_linguistico intelligenza_artificiale modello modelo_de_linguagem assistentes
        taalmodel* ai_assistent* ии ассистент* языковая_модель
        языковой_модели языковые_модели нейросет*
        помощник* 人工智能 助手 语言模型 大模型 模型 アシスタント モデル
        """,
    ),
    (
        USER,
        """
        user users human operator reader owner person nutzer* benutzer* anwender*
        utilisateur* usuario* utente utenti usuari* gebruiker* пользовател* 用户
        使用者 ユーザー 利用者
        """,
    ),
    (
        SYSTEM,
        """
        system sistema systeme systeem система 系统 システム
        """,
    ),
    (
        REVEAL,
        """
        reveal print output repeat show display disclose leak recite expose dump list
        give_me tell_me write_out spell_out what_are what_is export zeige zeig zeigen_sie
        nenne nennen_sie gib geben_sie verrate wiederhole drucke offenbare revele revelez
        affiche affichez montre repete donne muestra muestre revela repite imprime escribe
        mostra mostrate rivela stampa ripeti mostre imprima repita exiba toon laat_zien
        onthul herhaal geef покажи выведи раскрой повтори
        напечатай напиши 输出 显示 透露 告诉我 打印 重复 泄露 出力 表示 公開
        教えて
        """,
    ),
    (
        PROMPT,
        """
        system_prompt system_prompts systemprompt system_instructions system_message
        initial_prompt your_prompt your_instructions your_configuration
        internal_configuration your_rules exact_instructions initial_instructions
        hidden_prompt everything_above text_above words_above above_this_line your_context
        the_prompt systemprompts systemanweisung* deinen_prompt prompt_systeme ton_prompt
        votre_prompt prompt_du_systeme prompt_del_sistema tu_prompt prompt_di_sistema
        tuo_prompt prompt_do_sistema prompt_de_sistema seu_prompt systeemprompt* je_prompt
        системный_промпт системного_промпта
        свой_промпт системную_подсказку 系统提示词 系统提示
        提示词 システムプロンプト
        """,
    ),
    (
        SEND,
        """
        send post forward mail email e_mail upload append submit transmit exfiltrate put
        include request fetch encode place attach embed share leak pass sende senden_sie
        sendet schicke schick schicken_sie leite ubermittle poste hange envoie envoyez
        transmets transmettez ajoute transfere envia envie manda mande reenvia publica sube
        adjunta invia inviate mandate spedisci inoltra carica allega encaminhe anexe stuur
        verstuur zend plaats отправь отправьте пошли перешли
        передай загрузи 发送 发给 发到 转发 上传 提交 附加 送信 転送 送って
        アップロード
        """,
    ),
    (
        SECRET,
        """
        password* passphrase api_key* key keys token* secret* credential* conversation
        history chat_history inbox contacts address_book cookie* card_number* credit_card*
        private_data private_key* environment_variables ssh mails emails messages notes data
        document details home_address confidential calendar chat configuration passwort*
        kennwort* zugangsdaten schlussel gesprachsverlauf* chatverlauf nachrichten
        mot_de_passe mots_de_passe historique cle cles courriels contrasena* clave*
        historial conversacion correos cronologia conversazione chiave chiavi senha*
        conversa historico chave chaves wachtwoord* chatgeschiedenis gespreksgeschiedenis
        sleutel* gesprek парол* переписк* ключ* истори* данные
        密码 密钥 聊天记录 对话记录 邮件 历史 地址 パスワード 履歴 会話 鍵 メール
        """,
    ),
    (
        PLACE,
        """
         webhook pastebin to_the_address to_this_address to_our_server query_string
        to_this_url in_the_url
        """,
    ),
    (
        CALL,
        """
        call invoke run execute use trigger launch open rufe nutze benutze verwende fuhre
        starte rufen_sie appelle appelez utilise utilisez executez lance llama usa utiliza
        ejecuta invoca chiama esegui utilizza chame utilize roep gebruik voer вызови
        используй запусти выполни 调用 运行 执行 使用 呼び出し 実行
        """,
    ),
    (
        TOOL,
        """
        tool tools function command shell terminal script plugin skill werkzeug*
        mail_werkzeug funktion befehl outil* fonction commande herramienta* funcion
        strumento strumenti funzione ferramenta* funcao gereedschap functie
        инструмент* функци* 工具 函数 ツール 関数
        """,
    ),
    (
        ASK,
        """
        confirmation asking permission approval ask confirm question consult ruckfrage
        nachzufragen bestatigung nachfrage confirmer demander preguntar confirmacion
        confirmar chiedere conferma perguntar confirmacao bevestiging vragen
        подтверждени* спрашивая 确认 询问 確認
        """,
    ),
    (
        HARM,
        """
        delete wipe transfer_money transfer_funds transfer pay wire grant_access grant
        approve push disable remove drop_table install purchase buy rm rm_rf delete_file*
        delete_account send_mail invite archive close change add accept losche loeschen
        uberweise installiere zahle supprime supprimez vire paie installe borra elimina
        transfiere paga instala cancella trasferisci apague exclua transfira pague verwijder
        betaal installeer удали переведи оплати 删除 转账 支付 安装 削除
        送金 支払
        """,
    ),
    (
        TELL,
        """
        tell mention inform report reveal notify say disclose alert hint sag sage erwahne
        erwahnen verrate informiere melde mitteile sagen dis dites parle parler mentionne
        informe informer digas diga menciones mencione cuentes informes avises decir dire
        menzionare informare dica conte vertel zeg noem meld говори сообщай
        рассказывай упоминай сообщайте 告诉 透露 提及 通知 说
        言わ 伝え 知らせ 話さ
        """,
    ),
    (
        SECRETLY,
        """
        silently secretly quietly covertly between_us without_informing without_telling
        without_notifying without_mentioning hide_this_from act_as_though act_as_if heimlich
        unbemerkt en_secret discretement en_parler en_secreto a_escondidas di_nascosto
        em_segredo stiekem тайно незаметно 言わないで 教えないで 伝えないで
        知らせないで 話さないで 悄悄 秘密地 こっそり 密かに
        """,
    ),
    (
        YOU_ARE,
        """
        you_are you_re youre you_will_be act_as behave_as act_like du_bist sie_sind tu_es
        vous_etes eres usted_es sei tu_sei voce_e voce_agora je_bent u_bent
        ты_теперь ты_больше теперь_ты 你是 你现在 您现在 あなたは
        """,
    ),
    (
        NOW,
        """
        now no_longer from_now_on from_this_point from_here_on henceforth ab_jetzt ab_sofort
        nun desormais maintenant dorenavant a_partir_de_ahora desde_ahora ahora da_ora
        d_ora_in_poi ora a_partir_de_agora agora vanaf_nu voortaan теперь отныне
        从现在开始 从现在起 现在 今から これから 今後
        """,
    ),
    (
        PRETEND,
        """
        pretend roleplay role_play simulate imagine act_as act_like impersonate
        play_the_role tu_so tun_sie_so stell_dir_vor spiele fais_semblant joue_le_role
        agis_comme finge actua_como imagina fingi fai_finta agisci_come finja aja_como
        doe_alsof притворись представь веди_себя 假装 扮演 假设
        振りをして 演じ ふりをして
        """,
    ),
    (
        FREE,
        """
        without no free_from free_of freed_from freed beyond off lifts lift has_no have_no
        ohne keine frei_von sans aucune aucun sin libre_de ningun ninguna senza privo_di sem
        livre_de zonder geen без 没有 不受 无 無 なし ない のない
        """,
    ),
    (
        LIMIT,
        """
        rules limits limit restriction restrictions filter filters constraints policies
        policy ethics guidelines limitations moderation safeguards safety_checks checks_off
        boundaries censorship regeln einschrankung* grenzen beschrankungen schranken regles
        limite limites restriccion* reglas filtros regole limiti restrizioni filtri regras
        restricoes regels beperkingen ограничени* правил* фильтр* 限制
        规则 约束 制限 制約 ルール
        """,
    ),
    (
        UNBOUND,
        """
        dan unfiltered unrestricted uncensored jailbroken jailbreak anything_now
        never_refuses never_refuse amoral unlimited evil ungefiltert uneingeschrankt
        unzensiert lehnst_nichts_ab ne_refuses_jamais nunca_se_niega sin_restricciones
        senza_limiti sem_restricoes без_ограничений 不受限制 越狱 無制限
        """,
    ),
    (
        MODE,
        """
        developer_mode god_mode dan_mode maintenance_mode unrestricted_mode admin_mode
        debug_mode jailbreak_mode root_mode sudo_mode wartungsmodus entwicklermodus
        mode_developpeur modo_desarrollador modalita_sviluppatore modo_desenvolvedor
        ontwikkelaarsmodus режим_разработчика 开发者模式 開発者モード
        """,
    ),
    (
        MUST,
        """
        must should shall have_to has_to need_to needs_to ought required_to are_to is_to
        would_now always muss mussen soll sollen sollten hat_zu doit doivent devez dois debe
        deben debes tiene_que deve devono devi dovete devem moet moeten должен
        должна должны 必须 必須 应该 请 してください しなければ
        """,
    ),
    (
        IF_YOU_ARE,
        """
        if_you_are if_you_re if_you_were when_you_are as_you_are wenn_du falls_du wenn_sie
        falls_sie sofern_du si_vous_etes si_tu_es si_eres si_es_usted si_usted se_sei
        se_siete se_voce se_for als_je als_u als_jij если_ты если_вы 如果你是
        若你是 如果您是 読んでいる もしあなたが
        """,
    ),
    (
        SAY,
        """
        say write answer reply respond tell recommend rate rank praise describe state
        mention claim promote endorse treat render summarise summarize include insert mark
        report start end give score output act stop agree insist add collect sage schreibe
        antworte bewerte bewerten_sie empfiehl empfehlen_sie schreib behaupte dis ecris
        reponds repondez recommande indiquez ecrivez affirmez evalue di escribe responde
        recomienda califica indica scrivi rispondi raccomanda consiglia valuta escreva
        responda recomende diga avalie aprove schrijf antwoord zeg beveel скажи
        напиши ответь отвечай рекомендуй оцени 写 回答
        回复 推荐 评价 说 書い 答え 推薦 紹介
        """,
    ),
    (
        REMEMBER,
        """
        remember memorize save_to store_in add_to_your merk_dir speichere souviens_toi
        enregistre recuerda guarda ricorda salva lembre guarde onthoud запомни 记住
        覚えて
        """,
    ),
    (
        MEMORY,
        """
        your_memory to_memory long_term_memory future_conversations following_memory
        all_future deinem_gedachtnis ta_memoire tu_memoria tua_memoria sua_memoria
        je_geheugen памят* 记忆 記憶
        """,
    ),
    (
        TALK,
        """
        injection injections attack attacks attacker attackers researcher researchers
        advisory vulnerab* detector* bulletin cve jailbreaks exploit* red_team exfiltration
        prompt_injection angriff* angreifer* forscher* attaque* chercheur* ataque* atacante*
        inyeccion investigador* attacco attacchi attaccante ricercator* aanval* onderzoeker*
        исследовател* атак* 攻击 研究人员 攻撃 研究者 注入攻击
        """,
    ),
    (
        NOTE,
        """
        note notice attention important hinweis achtung nota attenzione atencion atencao
        примечание внимание 注意 重要 to_the_ai to_the_assistant dear hey
        hello an_die an_den pour para per_il para_o voor_de all to_ai to_any_ai to_automated
        hinweis_fur
        """,
    ),
    (
        TO_YOU,
        """
        you dir ihnen dich te vous toi ti vi lhe voce je jou тебе вам тебя 你 您
        あなた
        """,
    ),
    (
        GOAL,
        """
        task tasks goal goals objective* purpose job question aufgabe* ziel tache objectif
        tarea objetivo compito obiettivo tarefa taak doel задач* 任务 タスク
        """,
    ),
    (
        HERE,
        """
        this_page this_text this_document this_article this_product this_letter this_message
        this_note this_mail this_candidate this_hotel this_file this_paragraph this_section
        this_site this_issue this_invoice this_bill this_cv this_website the_page
        next_paragraph our diesem_text diese_seite dieser_seite dieses_produkt ce_texte
        cette_page ce_produit este_texto esta_pagina este_candidato questo_testo
        questa_pagina deste_texto deze_tekst этому_тексту этот_текст
        эту_страницу 本公司 这份 以下 下面 この文章 この文書 当社 这个
        """,
    ),
    (
        NEW,
        """
        new real true actual neue nouvelles nuevas nuove novas nieuwe новые 新 新しい
        """,
    ),
    (
        KNOW,
        """
        know learn find_out notice see wissen erfahren savoir sepa sapere saber weten
        знать 知道
        """,
    ),
    (
        COLON,
        """
        :
        """,
    ),
    (
        COMMA,
        """
        , 、 -
        """,
    ),
)
